"""The page in a real browser, over the real engine and a scripted backend.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from browser import is_foreign, needs_browser, playwright
from scripted_page import TEXT, ScriptedBackend

from app.components import race_value
from app.handlers import Handlers
from app.live.run import LiveRun

HEAD_SAYS_HALF = (
    "document.querySelector('.rv-pane[data-lane=mars] .rv-head').innerText.includes('.5')"
)

pytestmark = needs_browser
MARS_PANE, AR_PANE = (f"#race .rv-pane[data-lane={lane}]" for lane in ("mars", "ar"))


@pytest.fixture
def backend(scripted_backend: ScriptedBackend) -> ScriptedBackend:
    return scripted_backend


@pytest.fixture
def handlers(served_handlers: Handlers) -> Handlers:
    return served_handlers


@pytest.fixture(autouse=True)
def _slowly(backend: ScriptedBackend) -> None:
    backend.forward_seconds = 0.06  # half a minute for a race, so that nothing ends too early


@pytest.fixture
def visit(new_context: Callable[[], playwright.BrowserContext], address: str) -> Iterator[object]:
    """Open the page as a new visitor; fails the test if anything but this server was asked."""
    strangers, dialogs = [], []

    def open_page(width: int = 1280, height: int = 900, query: str = "") -> playwright.Page:
        page = new_context().new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.on("request", lambda r: is_foreign(r.url, address) and strangers.append(r.url))
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(address + query)
        page.wait_for_selector("#race .mars-race[data-state=empty]")
        page.wait_for_function("!document.querySelector('#footer').innerText.startsWith('Load')")
        return page

    yield open_page
    assert strangers == []
    assert dialogs == []


def running(handlers: Handlers) -> LiveRun:
    """The only race there is."""
    (race,) = handlers.live.runs._runs.values()
    return race


def set_knob(page: playwright.Page, knob: str, value: float) -> None:
    """Move a slider as a drag would, the value and an input event; press one of several."""
    page.evaluate(
        """([knob, value]) => {
          const choice = document.querySelector(`#${knob} input[type=radio][value="${value}"]`);
          if (choice) return choice.click();
          const slider = document.querySelector(`#${knob} input[type=range]`);
          slider.value = value;
          slider.dispatchEvent(new Event('input', { bubbles: true }));
        }""",
        [knob, value],
    )


def wait_steps(page: playwright.Page, count: int, lane: str = "mars") -> None:
    page.wait_for_function(
        "([lane, n]) => +document.querySelector(`.rv-pane[data-lane=${lane}]`)?.dataset.steps >= n",
        arg=[lane, count],
    )


def wait_state(page: playwright.Page, state: str) -> None:
    page.wait_for_selector(f"#race .mars-race[data-state={state}]")


def start(page: playwright.Page, prompt: str = "Say it.") -> None:
    before = page.locator("#race .mars-race").get_attribute("data-run")
    page.fill("#prompt textarea", prompt)
    page.click("#run")
    page.wait_for_selector(f"#race .mars-race:not([data-run='{before}'])")
    wait_steps(page, 3)


@pytest.mark.timed
def test_tau_moved_in_mid_run_acts_within_a_third_of_a_second(visit, handlers, backend) -> None:
    page = visit()
    set_knob(page, "tau", 1)
    delays = []
    for _ in range(3):
        start(page)
        moved = time.monotonic()
        set_knob(page, "tau", 0.5)
        run = running(handlers).transcripts[0].run
        while not any(
            getattr(e, "rows", None) and e.rows[0].settings.tau == 0.5 for e in run.events_since(0)
        ):
            assert time.monotonic() - moved < 5
            time.sleep(0.005)
        delays.append(time.monotonic() - moved)
        page.wait_for_function(HEAD_SAYS_HALF)
        seen = time.monotonic() - moved
        page.click("#stop")
        wait_state(page, "stopped")
        set_knob(page, "tau", 1)
    print(f"slider to forward {delays} s, last one seen in the page after {seen:.3f} s")
    assert min(delays) < 0.3


HEAD_SAYS = "document.querySelector('.rv-pane[data-lane=mars] .rv-head').innerText.includes('{}')"


def test_the_auto_switch_is_next_to_b_and_acts_on_the_next_forward(visit, handlers) -> None:
    page = visit()
    start(page)
    for said, block_size in (("B 4", 4), ("B auto", "auto")):  # it begins switched on
        page.focus("#block_size input[type=number]")
        page.keyboard.press("Tab")  # the slider
        page.keyboard.press("Tab")  # its i
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        page.wait_for_function(HEAD_SAYS.format(said))
        assert running(handlers).transcripts[0].run.settings.block_size == block_size


def test_text_is_grouped_by_forward_and_shown_as_text(visit, backend) -> None:
    page = visit()
    backend.forward_seconds = 0.002
    set_knob(page, "tau", 0.5)
    page.fill("#prompt textarea", "${HOME}<b>{{x}}")
    page.click("#run")
    wait_state(page, "finished")
    pane = page.locator(".rv-pane[data-lane=mars] .rv-text")
    shown = pane.evaluate("e => e.textContent")
    assert TEXT[:40] in shown.replace("\u200b", "")
    assert pane.locator("b").count() == 0
    sizes = pane.locator(".rv-c[data-n]").evaluate_all("a => a.map(e => +e.dataset.n)")
    assert 4 in sizes  # what the scripted model chooses for B
    assert page.input_value("#prompt textarea") == "${HOME}<b>{{x}}"


def test_charts_are_drawn_by_plotly_on_one_node_and_zoom_survives(visit, backend) -> None:
    page = visit()
    start(page)
    chart = page.locator("#race [data-chart=forwards]")
    chart.locator(".nsewdrag").scroll_into_view_if_needed()
    area = chart.locator(".nsewdrag").bounding_box()
    middle = area["y"] + area["height"] / 2
    page.mouse.move(area["x"] + area["width"] * 0.2, middle)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.6, middle, steps=5)
    page.mouse.up()
    plot = "document.querySelector('#race [data-chart=forwards] .rv-plot.js-plotly-plot')"
    page.wait_for_function(f"{plot}.layout.xaxis.range[0] > 0")
    zoomed = page.evaluate(f"{plot}.dataset.marked = 'yes', {plot}.layout.xaxis.range")
    backend.forward_seconds = 0.002
    wait_state(page, "finished")
    shown = page.evaluate(f"[{plot}.dataset.marked, {plot}.layout.xaxis.range]")
    assert shown == ["yes", zoomed]


def test_the_threshold_steers_a_run_and_is_a_lens_once_it_is_over(visit, backend) -> None:
    page = visit()
    start(page)
    lens = page.locator("#race .rv-lens-bar")
    set_knob(page, "tau", 0.5)
    page.wait_for_function(HEAD_SAYS_HALF)
    assert lens.is_hidden()
    page.click("#stop")
    wait_state(page, "stopped")
    set_knob(page, "tau", 0.7)
    lens.wait_for()
    assert lens.inner_text().startswith("Seen with τ\u00a0=\u00a00.7.")
    assert page.locator("#race .rv-lens").count() == 1
    start(page)
    assert lens.is_hidden()
    assert page.locator("#race .rv-lens").count() == 0


def test_stop_ends_the_workers_run_and_keeps_the_figures(visit, handlers, backend) -> None:
    page = visit()
    start(page)
    race = running(handlers)
    page.click("#stop")
    wait_state(page, "stopped")
    assert all(lane.run.is_finished for lane in race.transcripts)
    quiet = backend.num_forwards
    time.sleep(0.2)
    assert backend.num_forwards == quiet
    assert "–" not in page.inner_text("#race .rv-figure[data-key=perForward] .rv-value")
    page.click("#stop")
    start(page)
    page.keyboard.press("Escape")
    wait_state(page, "stopped")


def test_a_closed_tab_ends_the_workers_run(visit, handlers) -> None:
    page = visit()
    start(page)
    race = running(handlers)
    page.close()
    assert all(lane.run.wait(5) for lane in race.transcripts)
    assert race.transcripts[0].run.events_since(0)[-1].reason == "cancelled"


def test_slow_motion_opens_at_real_time_and_names_its_factor(visit, handlers) -> None:
    page = visit()
    choices = page.locator("#pace label").all_inner_texts()
    assert choices == ["Real time", "Slow, 1/10", "Very slow, 1/40"]
    assert page.locator("#pace input:checked").get_attribute("value") == "0"
    set_knob(page, "tau", 1)
    start(page)
    wait_state(page, "running")
    page.click("#pace label:has-text('Very slow')")
    wait_state(page, "slow")
    assert "40 times slower" in page.inner_text("#race .rv-status")
    assert [lane.run.pace for lane in running(handlers).transcripts] == [39, 39]
    page.click("#stop")
    page.reload()
    page.wait_for_selector("#pace input[value='0']:checked")


def test_two_visitors_neither_see_nor_move_each_other(visit, backend) -> None:
    backend.forward_seconds = 0.01
    first, second = visit(), visit()
    for page in (first, second):
        set_knob(page, "tau", 1)
        set_knob(page, "pace", 9)  # at full speed the first race would have the device alone
    start(first, "first marker")
    start(second, "second marker")
    set_knob(first, "tau", 0.5)
    first.wait_for_function(HEAD_SAYS_HALF)
    wait_steps(second, 12)
    second.click("#stop")
    wait_state(second, "stopped")
    heads = [page.inner_text(".rv-pane[data-lane=mars] .rv-head") for page in (first, second)]
    assert "0.5" in heads[0]
    assert "0.5" not in heads[1]
    assert "first marker" not in second.content()
    assert "second marker" not in first.content()


def test_a_page_that_slept_asks_for_the_lines_it_missed(
    visit, handlers, backend, monkeypatch
) -> None:
    monkeypatch.setattr(race_value, "WHOLE_CHARS", 2000)
    page = visit()
    start(page)
    view = "document.querySelector('#race .mars-race').lineView"
    page.evaluate(f"{view}.read = () => {{}}, 0")
    run = running(handlers).transcripts[1].run  # AR's, the longer one
    slept = len(run.events_since(0)) + 40  # forwards; a value repeats a line for five more values
    while len(run.events_since(0)) < slept:
        page.wait_for_timeout(50)
    with page.expect_response("**/component_server*/**") as asked:
        page.evaluate(f"delete {view}.read")
    assert asked.value.ok
    backend.forward_seconds = 0.002
    wait_state(page, "finished")
    pane = page.locator(".rv-pane[data-lane=ar] .rv-text")
    assert TEXT[:200] in pane.evaluate("e => e.textContent").replace("\u200b", "")


def test_refused_input_says_why_in_place_and_keeps_what_was_typed(visit) -> None:
    page = visit()
    start(page)
    page.click("#stop")
    wait_state(page, "stopped")
    page.fill("#prompt textarea", "  ")
    page.click("#run")
    page.wait_for_selector("#prompt :text('Type a prompt or choose an example.')")
    assert page.input_value("#prompt textarea") == "  "
    assert page.locator("#race .mars-race").get_attribute("data-state") == "stopped"
    start(page, "better")
    page.click("#stop")


def test_run_while_running_starts_anew(visit, handlers) -> None:
    page = visit()
    start(page)
    old = running(handlers)
    start(page, "another")
    assert all(lane.run.is_finished for lane in old.transcripts)
    assert running(handlers).order.prompt == "another"
    steps = page.locator("#race .mars-race").get_attribute("data-steps")
    wait_steps(page, int(steps) + 3)
    page.click("#stop")


def test_an_example_is_one_click(visit) -> None:
    page = visit()
    before = page.input_value("#prompt textarea")
    page.click(".chips .chip:has-text('Python')")
    wait_steps(page, 1)
    assert page.input_value("#prompt textarea") != before
    page.click("#stop")


def test_what_a_control_means_is_told_where_it_stands(visit) -> None:
    page = visit()
    assert {each.get_attribute("data-help") for each in page.locator("#desk .help").all()} == {
        *("tau", "block_size", "lossless", "pace", "presets")
    }
    text = page.locator("#tau .help-text")
    assert text.is_hidden()
    page.focus("#tau .help-button")
    page.keyboard.press("Enter")
    text.wait_for(state="visible")
    assert "how sure it is" in text.inner_text()
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


def test_a_prompt_that_is_no_task_is_offered_the_nearest_before_it_runs(visit, handlers) -> None:
    page = visit()
    known = handlers.book.prompt("symbolic", 0)
    page.fill("#prompt textarea", f"Please, {known.lower()}")
    page.wait_for_selector("#nearest:has-text('Not one of its tasks. The nearest: ')")
    page.click("#nearest")
    page.wait_for_function("p => document.querySelector('#prompt textarea').value === p", arg=known)
    page.wait_for_selector("#nearest", state="hidden")


def test_the_keyboard_is_enough(visit) -> None:
    page = visit()
    page.focus("#prompt textarea")
    page.keyboard.press("Control+A")
    page.keyboard.type("From the keyboard")
    page.keyboard.press("Control+Enter")
    wait_steps(page, 2)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#tau input[type=range]')"):
            break
    before = page.input_value("#tau input[type=range]")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#tau input[type=range]") != before
    page.keyboard.press("Escape")
    wait_state(page, "stopped")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_figures_and_both_lanes_above_a_bar_that_opens(visit, theme: str) -> None:
    page = visit(390, 844, f"?__theme={theme}")

    def box(selector: str) -> dict[str, float]:
        found = page.locator(selector).bounding_box()
        assert found is not None
        return found

    page.click("#fold")
    start(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.wait_for_function("window.scrollY > 100")
    bar = box("#knobs")
    assert bar["height"] <= 64  # running folded it
    assert bar["y"] + bar["height"] == 844
    tops = {each.bounding_box()["y"] for each in page.locator("#race .rv-figure").all()}
    assert len(tops) == 1
    for selector in ("#race .rv-figures", MARS_PANE, AR_PANE):
        found = box(selector)
        assert found["y"] >= 0
        assert found["y"] + found["height"] <= bar["y"]
        assert found["x"] + found["width"] <= 390
    page.mouse.wheel(0, 600)
    knobs = ("#tau input[type=range]", "#block_size input[type=range]", "#pace")
    assert not any(page.locator(selector).is_visible() for selector in knobs)
    page.click("#fold")
    assert page.get_attribute("#fold", "aria-expanded") == "true"
    for selector in (*knobs, "#run", "#stop"):
        found = box(selector)
        assert found["y"] >= 0
        assert found["y"] + found["height"] <= 844
        assert found["x"] + found["width"] <= 390
    page.click("#stop")
