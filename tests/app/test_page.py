"""Runs in a real browser, steered, stopped and shared, on one visitor's page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import needs_browser, opened, playwright
from live_page import (
    MOVED,
    begin,
    running,
    set_knob,
    start,
    wait_loaded,
    wait_state,
    wait_steps,
)
from scripted_page import TEXT, ScriptedBackend, eventually

from app.ui import stream

pytestmark = needs_browser


@pytest.fixture(autouse=True)
def _slowly(scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.1  # a minute for a race, so that nothing ends early


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}?max_new_tokens=512", 1280, 900) as made:
        wait_loaded(made)
        yield made


def test_a_run_is_steered_replaced_and_ended(page: playwright.Page, served_handlers) -> None:
    set_knob(page, "tau", 1)
    start(page)
    set_knob(page, "tau", 0.5)
    page.wait_for_selector(f"{MOVED}:has-text('0.5')")
    old = running(served_handlers)
    page.fill("#prompt textarea", "another")
    begin(page, lambda: page.press("#prompt textarea", "Shift+Enter"))
    assert all(lane.run.is_finished for lane in old.transcripts)
    race = running(served_handlers)
    assert race.order.prompt == "another"
    page.keyboard.press("Escape")
    wait_state(page, "stopped")
    assert all(lane.run.is_finished for lane in race.transcripts)
    assert "–" not in page.inner_text("#race .rv-because [data-key=perPass]")


def test_a_page_that_slept_asks_for_lines(
    page: playwright.Page, served_handlers, scripted_backend: ScriptedBackend, monkeypatch
) -> None:
    monkeypatch.setattr(stream, "WHOLE_CHARS", 2000)
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


def test_two_pages_do_not_meet(
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
    first.wait_for_selector(f"{MOVED}:has-text('0.5')")
    second.bring_to_front()
    wait_steps(second, 12)
    second.click("#stop")
    wait_state(second, "stopped")
    assert second.locator(MOVED).count() == 0
    assert "first marker" not in second.content()
    assert "second marker" not in first.content()

    first.bring_to_front()
    first.click("#stop")
    wait_state(first, "stopped")
    second.bring_to_front()
    start(second)
    race = running(served_handlers)
    second.close()
    assert all(lane.run.wait(60) for lane in race.transcripts)
    assert race.transcripts[0].run.events_since(0)[-1].reason == "cancelled"
