"""The controls next to a run in a real browser: their values, texts and errors, wide and narrow.

All tests share one visitor's page and leave it as the next one needs it. Skipped if Debian's
chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import needs_browser, opened, playwright
from live_page import HEAD_SAYS, begin, open_tab, running, set_knob, start, wait_loaded, wait_state
from scripted_page import ScriptedBackend

from app.live.lanes import OFFER
from app.ui.controls import PACES

pytestmark = needs_browser
MARS_PANE, AR_PANE = (f"#race .rv-pane[data-lane={lane}]" for lane in ("mars", "ar"))


@pytest.fixture(autouse=True)
def _slowly(scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.2  # a minute for a race, so that nothing ends early


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(address, 1280, 900) as made:
        wait_loaded(made)
        yield made


def test_the_keyboard_reaches_present_the_tabs_the_prompt_and_run_as_they_are_seen(
    page: playwright.Page,
) -> None:
    page.evaluate("document.activeElement.blur()")
    stops = []
    for _ in range(4):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.closest('[id]').id"))
    assert page.evaluate("document.activeElement.id") == "run"
    assert [stops[0], *stops[2:]] == ["present", "prompt", "run"]
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("[role=tab]:focus") == "Trade-off"
    page.locator("#grid-desk").wait_for(state="visible")
    page.keyboard.press("Home")
    page.locator("#desk").wait_for(state="visible")
    page.click("#checkpoint input")
    page.wait_for_selector("#checkpoint [role=listbox], .options")
    page.keyboard.press("Tab")  # which closes the list
    page.wait_for_selector("#checkpoint [role=listbox], .options", state="hidden")


def test_a_prompt_that_is_no_task_is_offered_the_nearest_before_it_runs(
    page: playwright.Page, served_handlers
) -> None:
    known = served_handlers.book.prompt("symbolic", 0)
    page.fill("#prompt textarea", known)
    run = page.locator("#run").bounding_box()
    page.fill("#prompt textarea", f"Please, {known.lower()}")
    page.wait_for_selector(f"#nearest:has-text('{OFFER.format('')}')")
    assert page.locator("#run").bounding_box() == run  # under the hand that is on its way there
    page.click("#nearest")
    page.wait_for_function("p => document.querySelector('#prompt textarea').value === p", arg=known)
    page.wait_for_selector("#nearest", state="hidden")


def test_each_control_is_explained_in_its_place(page: playwright.Page) -> None:
    assert {item.get_attribute("data-help") for item in page.locator("#desk .help").all()} == {
        *("tau", "block_size", "lossless", "pace")
    }
    text = page.locator("#tau .help-text")
    assert text.is_hidden()
    page.focus("#tau .help-button")
    page.keyboard.press("Enter")
    text.wait_for(state="visible")
    assert "a confidence" in text.inner_text()
    described = page.get_attribute("#tau input[type=range]", "aria-describedby")
    assert described == page.locator("#tau .help-text p").get_attribute("id")
    page.keyboard.press("Escape")
    text.wait_for(state="hidden")
    page.focus("#tau .help-button")
    page.keyboard.press("Space")
    text.locator("button:text('How it works')").click()
    page.locator("#ex-tau").wait_for(state="visible")
    page.wait_for_function(
        "Math.abs(document.querySelector('#ex-tau').getBoundingClientRect().y) < 99"
    )
    open_tab(page, "live")
    page.wait_for_selector("#run")


def test_the_keyboard_is_enough_and_finds_the_auto_switch_next_to_b(
    page: playwright.Page, served_handlers
) -> None:
    def type_and_run() -> None:
        page.focus("#prompt textarea")
        page.keyboard.press("Control+A")
        page.keyboard.type("By keys")
        page.keyboard.press("Control+Enter")

    begin(page, type_and_run)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#tau input[type=range]')"):
            break
    before = page.input_value("#tau input[type=range]")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#tau input[type=range]") != before

    def wait_block_size(said: str, block_size: object) -> None:
        page.wait_for_function(HEAD_SAYS.format(said))  # from the next forward on
        assert running(served_handlers).transcripts[0].run.settings.block_size == block_size

    page.focus("#block_size input[type=number]")
    page.keyboard.press("Tab")  # the slider
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    wait_block_size("B auto", "auto")
    set_knob(page, "block_size", 6)  # which ends auto
    wait_block_size("B 6", 6)
    playwright.expect(page.locator("#auto input")).not_to_be_checked()
    page.keyboard.press("Escape")
    wait_state(page, "stopped")


@pytest.mark.parametrize("size", [(1280, 720)])
def test_a_run_fits_on_one_screen(page: playwright.Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.evaluate("scrollTo(0, 0)")
    start(page)
    charts = [f"#race [data-chart={key}] .rv-plot" for key in ("forwards", "time")]
    for chart in charts:
        page.wait_for_function(f"document.querySelector('{chart}').data?.length")
    knobs = ("#prompt textarea", "#run", "#tau", "#block_size", "#auto", "#lossless")
    said = ("#race .rv-saying", "#race .rv-legend")
    for selector in (*knobs, *said, MARS_PANE, AR_PANE, *charts):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["y"] >= 0, selector
        assert box["y"] + box["height"] <= size[1], selector
    drawn = f"document.querySelector('{charts[1]}').data.map(({{ x }}) => x.length)"
    before = page.evaluate(drawn)
    page.wait_for_function(f"{drawn}.every((n, i) => n > [{before[0]}, {before[1]}][i])")
    page.click("#stop")
    wait_state(page, "stopped")


def test_an_example_is_one_click_slow_motion_names_its_factor_and_a_refusal_keeps_the_run(
    page: playwright.Page, served_handlers
) -> None:
    choices = page.locator("#pace label").all_inner_texts()
    assert choices == list(PACES)
    assert page.locator("#pace input:checked").get_attribute("value") == "0"
    set_knob(page, "tau", 1)
    before = page.input_value("#prompt textarea")
    begin(page, lambda: page.click(".chips .chip:has-text('Python')"))
    assert page.input_value("#prompt textarea") != before
    wait_state(page, "running")
    page.click("#pace label:has-text('40×')")
    wait_state(page, "slow")
    assert "(40×)" in page.inner_text("#race .rv-status")
    assert [lane.run.pace for lane in running(served_handlers).transcripts] == [39, 39]
    page.click("#stop")
    wait_state(page, "stopped")

    hint = """getComputedStyle(
      document.querySelector("#prompt [data-testid=block-info]"), "::after").content"""
    assert "Ctrl+Enter to run" in page.evaluate(hint)
    page.fill("#prompt textarea", "  ")
    run = page.locator("#run").bounding_box()
    page.click("#run")
    page.wait_for_selector("#prompt :text('Type a prompt or pick an example.')")
    assert page.evaluate(hint) == "none"  # the sentence is in its place
    assert page.locator("#run").bounding_box() == run
    assert page.input_value("#prompt textarea") == "  "
    assert page.locator("#race .mars-race").get_attribute("data-state") == "stopped"
    set_knob(page, "pace", 9)
    start(page, "better")
    page.click("#stop")
    wait_state(page, "stopped")


def test_a_phone_shows_figures_and_both_lanes_above_a_bar_that_opens(page: playwright.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("sessionStorage.clear()")  # else the reload brings the last run back
    page.reload()
    wait_loaded(page)

    def box(selector: str) -> dict[str, float]:
        box = page.locator(selector).bounding_box()
        assert box is not None
        return box

    page.click("#fold")
    start(page)
    page.wait_for_function("window.scrollY > 100")
    page.wait_for_function(
        "document.querySelector('#race').getBoundingClientRect().top >= 0", timeout=15_000
    )
    assert not page.locator("#knobs").is_visible()  # running folded it
    knobs = ("#tau input[type=range]", "#block_size input[type=range]", "#pace")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    bar = box("#bar")
    assert bar["height"] <= 112
    assert bar["y"] + bar["height"] == 844
    counts = [f"#race .rv-pane[data-lane={lane}] .rv-count b" for lane in ("mars", "ar")]
    for selector in (*counts, "#race .rv-beat", MARS_PANE, AR_PANE):
        actual = box(selector)
        assert 0 <= actual["y"] <= actual["y"] + actual["height"] <= bar["y"]
        assert actual["x"] + actual["width"] <= 390
    page.mouse.wheel(0, 600)
    assert not any(page.locator(selector).is_visible() for selector in knobs)
    page.click("#fold")
    assert page.get_attribute("#fold", "aria-expanded") == "true"
    for selector in (*knobs, "#run", "#stop"):
        actual = box(selector)
        assert 0 <= actual["y"] <= actual["y"] + actual["height"] <= 844
        assert actual["x"] + actual["width"] <= 390
    page.click("#stop")
