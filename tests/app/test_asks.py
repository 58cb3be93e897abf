"""Asks of a view, methods side by side, and links, on one visitor's page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from browser import needs_browser, opened, playwright
from live_page import ROOT, over, set_knob, wait_loaded
from page_texts import texts
from scripted_page import TEXT, ScriptedBackend

pytestmark = needs_browser
NUM_TOKENS = 24
PANE = f"{ROOT} .rv-pane[data-lane={{}}]"
MARS = PANE.format("mars")
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


def ask(page: playwright.Page, kind: str, **data: object) -> None:
    over(page, lambda: page.evaluate(ASK, [ROOT, kind, data]))


def lane(page: playwright.Page, name: str = "mars") -> dict[str, object]:
    return page.evaluate(LANE, [ROOT, name])


def test_the_methods_of_a_link_race(page: playwright.Page) -> None:
    page.wait_for_function("document.querySelectorAll('#view input:checked').length === 3")
    over(page, lambda: page.click("#run"))
    heads = page.locator(f"{ROOT} .rv-head h3").all_inner_texts()
    assert [head.split(":")[0] for head in heads] == ["MARS", "Plain AR", "Jacobi"]
    texts = [page.inner_text(f"{PANE.format(lane)} .rv-text") for lane in ("ar", "jacobi")]
    assert texts[0] == texts[1] != ""


def test_a_branch_goes_on_from_a_token_and_the_next_run_is_plain(page: playwright.Page) -> None:
    page.uncheck("#view label:has-text('Jacobi')")
    page.fill("#prompt textarea", "Say it.")
    over(page, lambda: page.click("#run"))
    original, whole = page.get_attribute(ROOT, "data-run"), lane(page)
    page.evaluate(ASK, [ROOT, "branch", {"lane": "mars", "token": 3, "id": 257}])
    page.wait_for_selector(".refused:has-text('ends the text')")
    assert page.get_attribute(ROOT, "data-run") == original
    page.fill("#prompt textarea", "typed since")
    ask(page, "branch", lane="mars", token=8, id=66)
    branch = lane(page)
    header = branch["header"]
    assert (header["prompt"], header["num_given"], header["settings"]["tau"]) == ("Say it.", 9, 0.5)
    assert header["prompt_ids"][-9:] == [*whole["ids"][:8], 66]
    assert len(branch["ids"]) == NUM_TOKENS
    assert lane(page, "first")["ids"] == whole["ids"]  # the original run, not another one
    assert page.locator(f"{MARS} .rv-given").evaluate("e => e.textContent") == TEXT[:8] + "B"
    assert page.locator(".rv-fork").all_inner_texts() == ["B"]
    first = PANE.format("first")
    assert page.locator(f"{first} .rv-mark").all_inner_texts() == [TEXT[8]]
    assert page.locator(f"{first} .rv-differs").is_enabled()
    ask(page, "branch", lane="first", token=2, id=67)
    assert lane(page)["given"] == TEXT[:2] + "C"
    page.click(f"{ROOT} .rv-back")
    page.wait_for_selector(f"{ROOT}[data-run='{original}'][data-state=finished]")
    assert lane(page)["ids"] == whole["ids"]
    over(page, lambda: page.click("#run"))
    headers = [lane(page, name)["header"] for name in ("mars", "ar")]
    assert [(it["prompt"], it["num_given"]) for it in headers] == [("typed since", 0)] * 2


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
    assert page.input_value("#prompt textarea") == "typed again"


def share_setup(page: playwright.Page, said: str) -> None:
    """Copy the link to the controls and wait for the menu's message about it."""
    menu = page.locator(f"{ROOT} .rv-top .ex-menu")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    menu.get_by_role("button", name=texts()["SHARE"]["setup"]["hint"]).click()
    menu.locator(".ex-said").filter(has_text=texts()["SHARE"][said]).wait_for()
    page.keyboard.press("Escape")


def test_a_copied_link_brings_everything_back(page: playwright.Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    prompt = "Why <b>100 %</b> & ${x} = 2?\n☃ #1"
    page.fill("#prompt textarea", prompt)
    assert page.is_checked("#lossless input[value=true]")
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
