"""Live without scrolling, its controls and its keys. All tests share one visitor's page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import needs_browser, opened, playwright
from live_page import ROOT, begin, choose, running, set_knob, start, wait_loaded, wait_state
from scripted_page import ScriptedBackend

pytestmark = needs_browser
TEXTS = [f"{ROOT} .rv-pane[data-lane={lane}] .rv-text" for lane in ("mars", "ar")]
CHARTS = [f"{ROOT} [data-chart={key}] .rv-plot" for key in ("forwards", "time")]
WHOLE = (
    "#prompt textarea", "#go button", "#lossless", "#tau", "#block_size", "#view",
    "#checkpoint", "#more > button", f"{ROOT} .rv-saying", f"{ROOT} .pl-tape", f"{ROOT} .pl-bar",
    *CHARTS,
)  # fmt: skip
FITS = """([selectors, width, height]) => selectors.every((selector) => {
  const shown = [...document.querySelectorAll(selector)].find((node) => node.checkVisibility());
  const { top, bottom, right } = shown.getBoundingClientRect();
  return top >= 0 && bottom <= height && right <= width;
})"""
LINES = """(text) => {
  const { top } = text.getBoundingClientRect();
  const { lineHeight, paddingTop } = getComputedStyle(text);
  const height = Math.min(innerHeight, top + text.clientHeight) - top - parseFloat(paddingTop);
  return height / parseFloat(lineHeight);
}"""
"""How many whole lines of a text fit where the visitor sees it."""
CUT = """(text) => {
  const edge = text.getBoundingClientRect().top;
  const isCut = ({ top, bottom }) => top < edge - 8 && bottom > edge + 4;
  const tokens = [...text.querySelectorAll(".rv-t")];
  return tokens.filter((token) => [...token.getClientRects()].some(isCut)).length;
}"""
"""How many tokens are cut by the upper edge of a text."""
AT = f"+document.querySelector('{ROOT}').dataset.at"


@pytest.fixture(autouse=True)
def _slowly(scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.2  # two minutes for a race, so that nothing ends early
    scripted_backend.text = " ".join(f"{n * n} steps" for n in range(100))  # repeats nothing


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}?max_new_tokens=512", 1280, 720) as made:
        wait_loaded(made)
        yield made


def stop(page: playwright.Page) -> None:
    page.click("#stop")
    wait_state(page, "stopped")


LAG = """async (chart) => {
  const { lineView } = document.querySelector("#race .mars-race");
  const lags = [];
  for (let i = 0; i < 20; i += 1) {
    await new Promise((next) => requestAnimationFrame(next));
    lags.push(lineView.at - (document.querySelector(chart).data?.[0].x.length ?? 0));
  }
  return Math.max(...lags);
}"""
"""By how many passes a chart is behind the texts."""


def test_a_run_is_seen_without_scrolling(page: playwright.Page) -> None:
    start(page)
    for chart in CHARTS:
        page.wait_for_function(f"document.querySelector('{chart}').data?.length")
    for width, height, lines in ((1440, 900, 12), (1280, 720, 8)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_function(FITS, arg=[WHOLE, width, height])
        for text in TEXTS:
            assert page.locator(text).evaluate(LINES) >= lines
    assert page.evaluate(LAG, CHARTS[0]) <= 0
    stop(page)


def test_long_texts(page: playwright.Page, scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.02
    scripted_backend.text = "\n".join(f"{n * n}" for n in range(200))
    start(page, "A long text.")
    for text in TEXTS:
        page.wait_for_function("t => document.querySelector(t).scrollTop > 0", arg=text)
        assert page.locator(text).evaluate(CUT) == 0
    stop(page)
    for text in TEXTS:
        page.wait_for_function("t => document.querySelector(t).scrollTop === 0", arg=text)


def test_run_becomes_stop_and_the_keyboard_stays_there(page: playwright.Page) -> None:
    page.focus("#run")
    begin(page, lambda: page.keyboard.press("Enter"))
    assert page.locator("#run").is_hidden()
    page.wait_for_function("document.activeElement.id === 'stop'")
    page.keyboard.press("Enter")
    wait_state(page, "stopped")
    assert page.locator("#stop").is_hidden()
    page.wait_for_function("document.activeElement.id === 'run'")


def test_tau_b_and_speed_act_on_a_running_lane(page: playwright.Page, served_handlers) -> None:
    page.click("#lossless label:has-text('Unverified')")
    playwright.expect(page.locator("#settings-do p:visible")).to_have_count(1)
    start(page)
    choose(page, "block_size", "auto (fastest here)")
    set_knob(page, "tau", 0.45)
    choose(page, "block_size", "3")
    page.wait_for_function(
        """() => {
          const { settings } = document.querySelector("#race .mars-race").lineView.run.lanes[0];
          return settings.tau === 0.45 && settings.block_size === 3 && !settings.lossless;
        }"""
    )
    lanes = running(served_handlers).transcripts
    assert (lanes[0].run.settings.tau, lanes[0].run.settings.block_size) == (0.45, 3)
    speed = page.locator(f"{ROOT} .pl-speed")
    speed.select_option("1.4")
    wait_state(page, "slow")
    assert all(lane.run.pace > 0 for lane in lanes)
    speed.select_option("Infinity")
    wait_state(page, "running")
    assert [lane.run.pace for lane in lanes] == [0, 0]
    stop(page)


def test_keys_work_everywhere_but_in_a_field(page: playwright.Page) -> None:
    page.evaluate("document.activeElement.blur()")
    begin(page, lambda: page.keyboard.press("r"))
    page.keyboard.press("Space")
    page.wait_for_selector(f"{ROOT} .pl-play[data-act=play]")
    at = page.evaluate(AT)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"{AT} === {at - 1}")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{AT} >= {at}")
    page.keyboard.press("Home")
    page.wait_for_function(f"{AT} === 0")
    page.keyboard.press("End")
    page.wait_for_function(f"{AT} > 0")
    page.keyboard.press("f")
    size = f"parseFloat(getComputedStyle(document.querySelector('{TEXTS[0]}')).fontSize)"
    assert page.evaluate(size) == 24
    page.keyboard.press("f")
    assert page.evaluate(size) < 24
    before = page.input_value("#prompt textarea")
    begin(page, lambda: page.keyboard.press("2"))
    assert page.input_value("#prompt textarea") != before
    page.fill("#prompt textarea", "")
    ran = page.get_attribute(ROOT, "data-run")
    page.locator("#prompt textarea").press_sequentially("r f 1 ")
    assert page.input_value("#prompt textarea") == "r f 1 "
    assert page.get_attribute(ROOT, "data-run") == ran
    assert page.evaluate(size) < 24
    page.keyboard.press("Escape")
    wait_state(page, "stopped")
    page.click("#more > button")
    page.click("#reset")
    wait_loaded(page)
    assert page.input_value("#prompt textarea") not in ("", "r f 1 ")


def test_a_phone_needs_no_sideways_scroll(page: playwright.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    start(page)
    page.wait_for_function(
        "Math.abs(document.querySelector('#race').getBoundingClientRect().top) < 60"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(FITS, [["#stop"], 390, 844])  # in reach below the results
    stop(page)
