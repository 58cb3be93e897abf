"""Asks of a view, methods side by side, and links, on one visitor's page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from browser import needs_browser, opened, playwright
from live_page import ROOT, over, set_knob, wait_loaded
from page_texts import texts
from scripted_page import TEXT, ScriptedBackend

from app.ui.controls import DEFAULTS, MAX_LANES, UNVERIFIED_TAU

pytestmark = needs_browser
MARS, AR = ".rv-pane[data-lane=mars]", ".rv-pane[data-lane=ar]"
NUM_TOKENS = 24
PANE = f"{ROOT} .rv-pane[data-lane={{}}]"
CHOICE = "#view label:has-text('{}')"
OVER = f"{ROOT}[data-state=finished]"
ASK = """([root, kind, { lane, ...data }]) => {
  const view = document.querySelector(root).lineView;
  const found = view.run.lanes.find((each) => each.name === lane);
  return view.ask(kind, found ? { ...data, lane: found } : data);
}"""
LANE = """([root, lane]) => {
  const found = document.querySelector(root).lineView.run.lanes.find((each) => each.name === lane);
  return { ids: found.tokens.map((t) => t.id), header: found.header, given: found.given };
}"""


@pytest.fixture(scope="module")
def page(address: str, scripted_backend: ScriptedBackend) -> Iterator[playwright.Page]:
    """The page of one visitor, opened by a link for three methods."""
    scripted_backend.forward_seconds = 0.001
    link = f"?prompt=Race+it.&tau=0.5&max_new_tokens={NUM_TOKENS}&lanes=jacobi,mars,ar"
    with opened(address + link, 1280, 900) as made:
        wait_loaded(made)
        made.wait_for_function("document.querySelector('#tau input[type=range]').value === '0.5'")
        yield made


@pytest.fixture(scope="module")
def whole(page: playwright.Page) -> dict[str, object]:
    """MARS' lane of a race against AR, which is shown."""
    page.fill("#prompt textarea", "Say it.")
    for title in ("MARS", "plain AR"):
        page.check(CHOICE.format(title))
    page.uncheck(CHOICE.format("Jacobi"))
    over(page, lambda: page.click("#run"))
    return lane(page)


def ask(page: playwright.Page, kind: str, **data: object) -> None:
    over(page, lambda: page.evaluate(ASK, [ROOT, kind, data]))


def lane(page: playwright.Page, name: str = "mars") -> dict[str, object]:
    state: dict[str, object] = page.evaluate(LANE, [ROOT, name])
    return state


def test_jacobi_races_with_the_others_and_no_method_is_rejected(
    page: playwright.Page,
) -> None:
    can = "([root, kind]) => document.querySelector(root).lineView.canAsk(kind)"
    allowed = [page.evaluate(can, [ROOT, kind]) for kind in ("run", "branch", "dance")]
    assert allowed == [True, True, False]
    page.click("#more > button")
    page.wait_for_function("document.querySelectorAll('#view input:checked').length === 3")
    page.click("#run")
    page.wait_for_selector(f"{OVER}[data-lanes='3']")
    heads = page.locator(f"{ROOT} .rv-head h3").all_inner_texts()
    assert [head.split(":")[0] for head in heads] == ["MARS", "Plain AR", "Jacobi"]
    texts = [page.inner_text(f"{PANE.format(lane)} .rv-text") for lane in ("ar", "jacobi")]
    assert texts[0] == texts[1] != ""
    # A single lane: panels and asks then refer to that lane.
    for title in ("MARS", "plain AR"):
        page.uncheck(CHOICE.format(title))
    page.click("#run")
    page.wait_for_selector(f"{OVER}[data-lanes='1']")
    page.check(CHOICE.format("MARS"))  # which the run on show had not
    tau = page.input_value("#tau input[type=range]")
    before = page.get_attribute(ROOT, "data-run")
    page.evaluate(f"document.querySelector('{ROOT}').lineView.ask('run', {{}})")
    page.wait_for_selector(f"{OVER}[data-lanes='1']:not([data-run='{before}'])")
    assert page.input_value("#tau input[type=range]") == tau
    assert page.is_checked(CHOICE.format("Jacobi"))

    for title in ("MARS", "plain AR", "Jacobi"):
        page.uncheck(CHOICE.format(title))
    page.click("#run")
    page.wait_for_selector(f"text=Choose 1 to {MAX_LANES} of these methods")


def test_an_alternative_in_the_drawer_starts_a_branch_and_a_refusal_keeps_the_run(
    page: playwright.Page, whole: dict[str, object]
) -> None:
    before = page.get_attribute(ROOT, "data-run")
    page.evaluate(ASK, [ROOT, "branch", {"lane": "mars", "token": 3, "id": 257}])
    page.wait_for_selector("#remark :text('ends the text')")
    assert page.get_attribute(ROOT, "data-run") == before
    drawer = f"{ROOT} .rv-drawer"
    page.locator(f"{MARS} .rv-t >> nth=4").click()
    page.wait_for_selector(f"{drawer}[data-token='5']")
    page.keyboard.press("Escape")
    page.wait_for_selector(drawer, state="hidden")
    page.locator(f"{MARS} .rv-text").focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector(f"{drawer}[data-token='5']:focus")
    over(page, lambda: page.click(f"{drawer} [data-place='5'] button >> nth=0"))
    assert page.locator(drawer).is_hidden()
    assert lane(page)["header"]["prompt_ids"][-5:-1] == whole["ids"][:4]
    assert lane(page, "first")["ids"] == whole["ids"]


def test_a_branch_goes_on_from_a_token_and_the_next_run_is_plain(
    page: playwright.Page, whole: dict[str, object]
) -> None:
    over(page, lambda: page.click("#run"))  # the original run again
    original = page.get_attribute(ROOT, "data-run")
    page.fill("#prompt textarea", "typed since")
    ask(page, "branch", lane="mars", token=8, id=66)
    branch = lane(page)
    header = branch["header"]
    assert header["prompt"] == "Say it."
    assert header["num_given"] == 9
    assert header["prompt_ids"][-9:] == [*whole["ids"][:8], 66]
    assert header["settings"]["tau"] == 0.5
    assert len(branch["ids"]) == NUM_TOKENS
    assert lane(page, "first")["ids"] == whole["ids"]  # the original run, not another one
    assert page.locator(f"{MARS} .rv-given").evaluate("e => e.textContent") == TEXT[:8] + "B"
    assert page.locator(".rv-fork").all_inner_texts() == ["B"]
    first = PANE.format("first")
    assert page.locator(f"{first} .rv-mark").all_inner_texts() == [TEXT[8]]
    assert page.locator(f"{first} .rv-differs").is_enabled()
    assert page.input_value("#prompt textarea") == "typed since"
    ask(page, "branch", lane="first", token=2, id=67)
    assert lane(page)["given"] == TEXT[:2] + "C"
    page.click(f"{ROOT} .rv-back")
    page.wait_for_selector(f"{ROOT}[data-run='{original}'][data-state=finished]")
    assert lane(page)["ids"] == whole["ids"]
    assert page.locator(f"{ROOT} .rv-back").is_hidden()
    over(page, lambda: page.click("#run"))
    plain = lane(page)
    assert (plain["header"]["prompt"], plain["header"]["num_given"]) == ("typed since", 0)
    assert lane(page, "ar")["header"]["num_given"] == 0
    assert page.locator(".rv-given").count() == 0


def test_another_run_of_the_same_prompt_sets_the_controls(page: playwright.Page) -> None:
    prompt = lane(page)["header"]["prompt"]
    page.fill("#prompt textarea", "typed again")
    settings = {"tau": 0.25, "block_size": 2, "lossless": True, "metric": "margin"}
    ask(page, "run", settings=settings)
    actual = lane(page)
    assert {name: actual["header"]["settings"][name] for name in settings} == settings
    assert actual["header"]["prompt"] == prompt
    assert page.input_value("#tau input[type=range]") == "0.25"
    assert page.input_value("#block_size input") == "2"
    assert page.is_checked("#lossless input[value=true]")
    page.click("#more > button")
    assert page.is_checked("#metric input[value=margin]")
    page.click("#more > button.open")  # which would cover the menu of the result
    ask(page, "run", settings={**settings, "block_size": "auto"})
    assert page.input_value("#block_size input").startswith("auto")
    assert lane(page)["header"]["settings"]["block_size"] == "auto"
    assert page.input_value("#prompt textarea") == "typed again"


def share_setup(page: playwright.Page, said: str) -> None:
    """Copy the link to the controls and wait for the menu's message about it."""
    menu = page.locator(f"{ROOT} .rv-top .ex-menu")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    menu.get_by_role("button", name=texts()["SHARE"]["setup"]["hint"]).click()
    menu.locator(".ex-said").filter(has_text=texts()["SHARE"][said]).wait_for()
    page.keyboard.press("Escape")


def test_a_copied_link_brings_everything_back_and_runs_nothing(
    page: playwright.Page, address: str
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    prompt = "Why <b>100 %</b> & ${x} = 2?\n☃ #1"
    page.fill("#prompt textarea", prompt)
    assert page.is_checked("#lossless input[value=true]")
    tau = playwright.expect(page.locator("#tau input[type=range]"))
    set_knob(page, "tau", DEFAULTS.tau)
    for mode, value in (("Unverified", UNVERIFIED_TAU), ("Same", DEFAULTS.tau)):
        page.click(f"#lossless label:has-text('{mode}')")
        tau.to_have_value(str(value))
    set_knob(page, "tau", 0.5)
    page.click("#lossless label:has-text('Unverified')")
    share_setup(page, "setupCopied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(address + "?")
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    chosen = {"prompt": prompt, "tau": "0.5", "lossless": "false"}
    assert {**chosen, "max_new_tokens": str(NUM_TOKENS)}.items() <= query.items()
    page.fill("#prompt textarea", "☃" * 900)
    share_setup(page, "tooLong")
    page.click("#lossless label:has-text('Same')")
    set_knob(page, "tau", 0.75)
    page.goto(link + "&tau_policy=best&" + urlencode({"nobody": "<b>"}))
    wait_loaded(page)
    page.wait_for_selector("#remark :text('tau_policy: ')")
    assert page.input_value("#prompt textarea") == prompt
    assert page.input_value("#tau input[type=range]") == "0.5"
    assert not page.is_checked("#lossless input[value=true]")  # the page opens with it on
    assert page.get_attribute(ROOT, "data-state") not in ("running", "slow", "finished")
    over(page, lambda: page.click("#run"))
    share_setup(page, "setupCopied")
    assert page.evaluate("navigator.clipboard.readText()") == link
