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
BOXES = """(selectors) => selectors.map((selector) => {
  const shown = [...document.querySelectorAll(selector)].find((node) => node.checkVisibility());
  const { top, bottom, right } = shown.getBoundingClientRect();
  return [selector, top, bottom, right];
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


def box_of(page: playwright.Page, selector: str) -> dict[str, float]:
    box = page.locator(selector).first.bounding_box()
    assert box is not None, selector
    return box


def stop(page: playwright.Page) -> None:
    page.click("#stop")
    wait_state(page, "stopped")


@pytest.mark.parametrize(("size", "lines"), [((1280, 720), 8), ((1440, 900), 12)])
def test_a_run_is_seen_without_scrolling(
    page: playwright.Page, size: tuple[int, int], lines: int
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.evaluate("scrollTo(0, 0)")
    start(page)
    for chart in CHARTS:
        page.wait_for_function(f"document.querySelector('{chart}').data?.length")
    for selector, top, bottom, right in page.evaluate(BOXES, WHOLE):
        assert top >= 0, selector
        assert bottom <= size[1], selector
        assert right <= size[0], selector
    for text in TEXTS:
        assert page.locator(text).evaluate(LINES) >= lines
    folds = page.locator(f"{ROOT} .rv-follow").bounding_box()
    assert folds is None or folds["y"] <= 950
    stop(page)


def test_the_charts_contain_what_the_texts_show(page: playwright.Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    start(page)
    lags = """async ([chart]) => {
      const view = document.querySelector("#race .mars-race").lineView;
      const lags = [];
      for (let i = 0; i < 20; i += 1) {
        await new Promise((next) => requestAnimationFrame(next));
        const drawn = document.querySelector(chart).data?.[0].x.length ?? 0;
        lags.push(view.at - drawn);
      }
      return Math.max(...lags);
    }"""
    page.wait_for_function(f"document.querySelector('{CHARTS[0]}').data?.length")
    assert page.evaluate(lags, CHARTS) <= 0
    stop(page)


def test_the_first_line_of_a_long_text_is_whole_and_a_finished_text_begins_at_its_top(
    page: playwright.Page, scripted_backend: ScriptedBackend
) -> None:
    scripted_backend.forward_seconds = 0.02
    page.set_viewport_size({"width": 1280, "height": 720})
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


def test_tau_and_b_act_on_a_running_lane_in_both_modes(
    page: playwright.Page, served_handlers
) -> None:
    def settings():
        return running(served_handlers).transcripts[0].run.settings

    for mode, tau, block_size in (("Unverified", 0.45, 3), ("Same text as AR", 0.55, 2)):
        page.click(f"#lossless label:has-text('{mode}')")
        says = page.locator("#settings-do p:visible")
        playwright.expect(says).to_have_count(1)
        start(page)
        choose(page, "block_size", "auto (fastest here)")
        set_knob(page, "tau", tau)
        choose(page, "block_size", str(block_size))
        page.wait_for_function(
            """([tau, blockSize]) => {
              const { settings } = document.querySelector("#race .mars-race").lineView.run.lanes[0];
              return settings.tau === tau && settings.block_size === blockSize;
            }""",
            arg=[tau, block_size],
        )
        assert (settings().tau, settings().block_size) == (tau, block_size)
        assert settings().lossless == (mode != "Unverified")
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


def test_one_speed_serves_replays_and_live_runs(page: playwright.Page, served_handlers) -> None:
    start(page)
    speed = page.locator(f"{ROOT} .pl-speed")
    speed.select_option("1.4")
    wait_state(page, "slow")
    assert all(lane.run.pace > 0 for lane in running(served_handlers).transcripts)
    speed.select_option("Infinity")
    wait_state(page, "running")
    assert [lane.run.pace for lane in running(served_handlers).transcripts] == [0, 0]
    stop(page)


def test_a_refused_prompt_keeps_the_run_and_reset_opens_the_page_again(
    page: playwright.Page,
) -> None:
    before = page.get_attribute(ROOT, "data-run")
    page.fill("#prompt textarea", "  ")
    page.click("#run")
    page.wait_for_selector("#prompt .refused")
    assert page.get_attribute(ROOT, "data-run") == before
    page.click("#more > button")
    page.click("#reset")
    wait_loaded(page)
    assert page.input_value("#prompt textarea").strip()
    assert not page.locator(".refused").count()


def test_a_phone_needs_no_sideways_scroll(page: playwright.Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    start(page)
    page.wait_for_function(
        "Math.abs(document.querySelector('#race').getBoundingClientRect().top) < 60"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = box_of(page, "#stop")  # in reach below the results
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 844
    stop(page)
    page.set_viewport_size({"width": 1280, "height": 720})
