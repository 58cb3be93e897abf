"""Runs in a real browser, steered, stopped and shared, over the real engine and a scripted backend.

One visitor's page, which each test leaves as the next one needs it. Skipped where Debian's chromium
is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from browser import needs_browser, opened, playwright, see
from live_page import (
    HEAD_SAYS,
    SETTINGS,
    running,
    set_knob,
    start,
    wait_loaded,
    wait_state,
    wait_steps,
)
from scripted_page import TEXT, ScriptedBackend, eventually

from app.ui import run_log

pytestmark = needs_browser


@pytest.fixture(autouse=True)
def _slowly(scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.06  # half a minute for a race, so that nothing ends early


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(address, 1280, 900) as made:
        wait_loaded(made)
        yield made


def frames_of(page: playwright.Page) -> int:
    """Callbacks of its frames within half a second; those of other tabs are reported as well."""
    session = page.context.new_cdp_session(page)
    own_values = session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    events: list[dict[str, Any]] = []
    over: list[object] = []
    session.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    session.on("Tracing.tracingComplete", lambda reported: over.append(reported))
    session.send("Tracing.start", {"categories": "devtools.timeline"})
    page.wait_for_timeout(500)
    session.send("Tracing.end")
    assert eventually(lambda: page.evaluate("0") or over)  # which lets the events come
    session.detach()
    frames = [event for event in events if event["name"] == "FireAnimationFrame"]
    return sum(event["args"]["data"]["frame"] == own_values for event in frames)


def test_an_untouched_page_becomes_idle(page: playwright.Page) -> None:
    """It shares the machine with the model. Gradio's sign of loading swings for some seconds."""
    until = time.monotonic() + 60
    while frames_of(page) > 2:
        assert time.monotonic() < until


@pytest.mark.timed
def test_tau_moved_in_mid_run_acts_within_a_third_of_a_second(
    page: playwright.Page, served_handlers
) -> None:
    set_knob(page, "tau", 1)
    delays = []
    for _ in range(3):
        start(page)
        moved = time.monotonic()
        set_knob(page, "tau", 0.5)
        run = running(served_handlers).transcripts[0].run
        while not any(
            getattr(e, "rows", None) and e.rows[0].settings.tau == 0.5 for e in run.events_since(0)
        ):
            assert time.monotonic() - moved < 5
        delays.append(time.monotonic() - moved)
        page.wait_for_function(HEAD_SAYS.format(".5"))
        page.click("#stop")
        wait_state(page, "stopped")
        set_knob(page, "tau", 1)
    assert min(delays) < 0.3


def test_the_threshold_steers_a_run_stop_ends_it_and_a_lens_looks_at_it_until_the_next(
    page: playwright.Page, served_handlers
) -> None:
    set_knob(page, "tau", 1)
    start(page)
    lens = page.locator("#race .rv-lens-bar")
    set_knob(page, "tau", 0.5)
    page.wait_for_function(HEAD_SAYS.format(".5"))
    assert lens.is_hidden()

    race = running(served_handlers)
    page.click("#stop")
    wait_state(page, "stopped")
    assert all(lane.run.is_finished for lane in race.transcripts)
    assert "–" not in page.inner_text("#race .rv-figure[data-key=perForward] .rv-value")

    set_knob(page, "tau", 0.7)
    lens.wait_for()
    assert lens.inner_text().startswith("Shown with τ\u00a0=\u00a00.7.")
    assert page.locator("#race .rv-lens").count() == 1
    page.click("#stop")  # once more
    start(page)
    assert lens.is_hidden()
    assert page.locator("#race .rv-lens").count() == 0

    old = running(served_handlers)
    start(page, "another")
    assert all(lane.run.is_finished for lane in old.transcripts)
    assert running(served_handlers).order.prompt == "another"
    wait_steps(page, int(page.locator("#race .mars-race").get_attribute("data-steps")) + 3)
    page.keyboard.press("Escape")
    wait_state(page, "stopped")


def test_text_is_grouped_by_forward_and_charts_keep_their_node_and_their_zoom(
    page: playwright.Page, scripted_backend: ScriptedBackend
) -> None:
    set_knob(page, "tau", 0.5)
    start(page, "${HOME}<b>{{x}}")
    chart = page.locator("#race [data-chart=forwards]")
    see(chart)
    chart.locator(".rv-plot.js-plotly-plot:not([data-is-stale])").wait_for()  # of this run
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
    scripted_backend.forward_seconds = 0.002
    wait_state(page, "finished")
    shown = page.evaluate(f"[{plot}.dataset.marked, {plot}.layout.xaxis.range]")
    assert shown == ["yes", zoomed]

    pane = page.locator(".rv-pane[data-lane=mars] .rv-text")
    shown = pane.evaluate("e => e.textContent")
    assert TEXT[:40] in shown.replace("\u200b", "")
    assert pane.locator("b").count() == 0
    sizes = pane.locator(".rv-c[data-n]").evaluate_all("a => a.map(e => +e.dataset.n)")
    assert 4 in sizes  # what the scripted model chooses for B
    assert page.input_value("#prompt textarea") == "${HOME}<b>{{x}}"


def test_a_page_that_slept_asks_for_the_lines_it_missed(
    page: playwright.Page, served_handlers, scripted_backend: ScriptedBackend, monkeypatch
) -> None:
    monkeypatch.setattr(run_log, "WHOLE_CHARS", 2000)
    scripted_backend.forward_seconds = 0.03
    start(page)
    view = "document.querySelector('#race .mars-race').lineView"
    page.evaluate(f"{view}.read = () => {{}}, 0")
    run = running(served_handlers).transcripts[1].run  # AR's, the longer one
    slept = len(run.events_since(0)) + 40  # forwards; a value repeats a line for five more values
    assert eventually(lambda: len(run.events_since(0)) >= slept)
    with page.expect_response("**/component_server*/**") as response:
        page.evaluate(f"delete {view}.read")
    assert response.value.ok
    scripted_backend.forward_seconds = 0.002
    wait_state(page, "finished")
    pane = page.locator(".rv-pane[data-lane=ar] .rv-text")
    assert TEXT[:200] in pane.evaluate("e => e.textContent").replace("\u200b", "")


def test_two_pages_neither_see_nor_move_each_other_and_closing_one_ends_its_run(
    page: playwright.Page, served_handlers, scripted_backend: ScriptedBackend
) -> None:
    scripted_backend.forward_seconds = 0.01
    with page.expect_popup() as popup:  # the server knows a page, not a visitor
        page.evaluate("window.open(location.href)")
    first, second = page, popup.value
    wait_loaded(second)
    for item in (first, second):
        set_knob(item, "tau", 1)
        # at full speed the first race would have exclusive use of the device
        set_knob(item, "pace", 9)
    first.bring_to_front()  # a page behind another is drawn once a second
    start(first, "first marker")
    second.bring_to_front()
    start(second, "second marker")
    first.bring_to_front()
    set_knob(first, "tau", 0.5)
    first.wait_for_function(HEAD_SAYS.format(".5"))
    second.bring_to_front()
    wait_steps(second, 12)
    second.click("#stop")
    wait_state(second, "stopped")
    heads = [entry.get_attribute(SETTINGS, "title") for entry in (first, second)]
    assert "0.5" in heads[0]
    assert "0.5" not in heads[1]
    assert "first marker" not in second.content()
    assert "second marker" not in first.content()

    first.bring_to_front()
    first.click("#stop")
    wait_state(first, "stopped")
    second.bring_to_front()
    start(second)
    race = running(served_handlers)
    second.close()
    assert all(lane.run.wait(5) for lane in race.transcripts)
    assert race.transcripts[0].run.events_since(0)[-1].reason == "cancelled"
