"""A result and what visitors do beside it: the stage never speaks of another prompt."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import ROOT, run, wait_loaded
from scripted_page import ScriptedBackend

pytestmark = needs_browser
PROMPT, FOREIGN = f"{ROOT} .rv-prompt", f"{ROOT} .rv-foreign"
BOX = "#prompt textarea"
PASTE = """([box, text]) => {
  document.querySelector(box).focus();
  document.execCommand("insertText", false, text);
}"""
Visit = Callable[..., playwright.Page]


@pytest.fixture
def visit(arrive: Arrive, address: str, scripted_backend: ScriptedBackend) -> Visit:
    """Open the page as a new visitor, at full speed."""
    scripted_backend.forward_seconds = 0.001

    def open_page(query: str = "", *size: int) -> playwright.Page:
        page = arrive(f"{address}?max_new_tokens=40{query}", *size)
        wait_loaded(page)
        return page

    return open_page


def wait_foreign(page: playwright.Page, is_so: bool) -> None:
    page.wait_for_selector(f"{ROOT} .rv-asked[data-foreign={str(is_so).lower()}]", state="visible")
    assert page.locator(FOREIGN).is_visible() == is_so


def test_a_result_carries_its_prompt_and_says_when_another_is_typed(visit: Visit) -> None:
    page = visit()
    run(page, "Say <b>it</b>.\nTwice.")
    assert page.inner_text(PROMPT) == "Say <b>it</b>.\nTwice."
    assert "at most 40 tokens" in page.inner_text(f"{ROOT} .rv-once")
    wait_foreign(page, False)
    page.fill(BOX, "Say something else.")
    wait_foreign(page, True)
    assert page.inner_text(PROMPT) == "Say <b>it</b>.\nTwice."
    page.fill(BOX, "Say <b>it</b>.\nTwice.")
    wait_foreign(page, False)


def test_an_example_is_not_taken_for_the_answer_beside_it(
    visit: Visit, scripted_backend: ScriptedBackend
) -> None:
    page = visit()
    run(page, "Say it.")
    page.evaluate("document.getElementById('run').click = () => {}")  # the run that follows waits
    page.click(".chips:visible button >> nth=0")
    wait_foreign(page, True)
    assert page.inner_text(PROMPT) == "Say it."
    page.evaluate("delete document.getElementById('run').click")
    run(page)
    wait_foreign(page, False)
    assert page.inner_text(PROMPT) == page.input_value(BOX)


def test_the_prompt_of_a_link_is_not_taken_for_the_answer_beside_it(
    visit: Visit, address: str
) -> None:
    page = visit()
    run(page, "Say it.")
    value = page.evaluate(f"document.querySelector('{ROOT}').lineView.latest")
    followed = visit("&prompt=" + quote("What of this?"))
    followed.evaluate(f"value => document.querySelector('{ROOT}').lineView.read(value)", value)
    followed.wait_for_function(f"document.querySelector('{BOX}').value === 'What of this?'")
    wait_foreign(followed, True)
    assert followed.inner_text(PROMPT) == "Say it."


def test_a_model_of_single_tasks_holds_no_conversation(
    visit: Visit, scripted_backend: ScriptedBackend
) -> None:
    page = visit()
    run(page, "Say it.")
    first = scripted_backend.prompts[-1]
    assert page.input_value(BOX) == "Say it."
    run(page)
    assert scripted_backend.prompts[-1] == first
    assert not page.locator(".mars-conversation").is_visible()


def test_a_long_paste_is_kept_and_refused_in_a_sentence(visit: Visit) -> None:
    page = visit()
    page.fill(BOX, "")
    page.evaluate(PASTE, [BOX, "long " * 1800])
    assert len(page.input_value(BOX)) == 9000
    page.click("#run")
    page.wait_for_selector("#prompt :text('Shorten the prompt to at most 8,000 characters.')")
    assert page.get_attribute(ROOT, "data-state") == "empty"


def test_a_refusal_leaves_the_stage_with_the_next_action(visit: Visit) -> None:
    page = visit()
    page.click("#more > button")
    page.click("#checkpoint input")
    page.click("[role=option]:has-text('absent')")
    page.fill(BOX, "Say it.")
    page.click("#run")
    page.wait_for_selector(f"{ROOT}[data-state=error]")
    page.fill(BOX, "Say it again.")
    page.wait_for_selector(f"{ROOT}[data-state=empty]")
    page.click("#checkpoint input")
    page.click("[role=option]:has-text('scripted')")
    run(page)
    page.fill(BOX, "What was decoded stays.")
    page.wait_for_timeout(300)
    assert page.get_attribute(ROOT, "data-state") == "finished"


def test_the_api_page_opens_where_the_readme_says(visit: Visit) -> None:
    page = visit("&view=api")
    page.wait_for_selector(":text('/generate') >> nth=0")
    page.wait_for_selector(":text('/compare') >> nth=0")
    assert "left out" not in page.inner_text("#remark")


def test_views_stand_where_the_browser_forbids_channels(
    browser: playwright.Browser, address: str
) -> None:
    """As in an embedded page whose storage is blocked."""
    context = browser.new_context()
    context.add_init_script("""
      const denied = () => { throw new DOMException("denied", "SecurityError"); };
      window.BroadcastChannel = class { constructor() { denied(); } };
      Object.defineProperty(window, "indexedDB", { get: denied });
      Object.defineProperty(window, "localStorage", { get: denied });""")
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(address)
    page.wait_for_selector(f"{ROOT}[data-state=empty]")
    tabs = {"Batch": "#batch", "Grid": "#grid", "Load lab": "#load", "Compare": "#compare"}
    for name, view in tabs.items():
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_selector(f"{view} section")
    page.wait_for_selector("#compare .cv-said:text('does not let the page keep anything')")
    assert [each for each in troubles if "mars" in each.lower() or "Broadcast" in each] == []
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_jumps_when_run_is_pressed(
    visit: Visit, scripted_backend: ScriptedBackend, width: int
) -> None:
    """The lanes stand where they stood: while a prompt is typed, its run begins, and after."""
    scripted_backend.forward_seconds = 0.02
    page = visit("", width, 900)
    place = f"document.querySelector('{ROOT} .rv-panes').offsetTop"
    run(page, "Say it.")
    before = page.evaluate(place)
    page.fill("#prompt textarea", "Say something else.")
    page.wait_for_selector(FOREIGN)
    places = [page.evaluate(place)]
    page.evaluate(
        """([root, place]) => {
          window.places = new Set();
          const look = () => { window.places.add(eval(place)); requestAnimationFrame(look); };
          look();
        }""",
        [ROOT, place],
    )
    run(page)
    places += page.evaluate("[...window.places]")
    assert set(places) == {before}
