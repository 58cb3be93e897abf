"""What a visitor keeps when the connection or the server is lost in the middle of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import LOADED, ROOT, wait_loaded, wait_state
from scripted_page import ScriptedBackend
from wire import Wire

from app.handlers import Handlers

pytestmark = needs_browser
PROMPT = "A prompt that nobody wants to type twice."
BOX = "#prompt textarea"


@pytest.fixture
def wire(address: str) -> Iterator[Wire]:
    with closing(Wire(int(address.rstrip("/").rsplit(":", 1)[1]))) as made:
        yield made


@pytest.fixture
def page(
    arrive: Arrive, wire: Wire, scripted_backend: ScriptedBackend
) -> Iterator[playwright.Page]:
    """The page in the middle of a run, with a prompt and settings that it does not open with."""
    scripted_backend.forward_seconds = 0.05
    made = arrive(f"http://127.0.0.1:{wire.port}/?tau=0.4&max_new_tokens=200")
    wait_loaded(made)
    made.fill(BOX, PROMPT)
    made.click("#run")
    wait_state(made, "running")
    made.wait_for_function("Number(document.querySelector('#race .mars-race').dataset.steps) > 3")
    yield made
    scripted_backend.forward_seconds = 0.001


def wait_reloaded(page: playwright.Page) -> None:
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.wait_for_function(LOADED)


def test_a_cut_connection_loses_neither_prompt_nor_answer(
    page: playwright.Page, wire: Wire
) -> None:
    text = page.locator(f"{ROOT} .rv-pane[data-lane=ar] .rv-t").all_inner_texts()
    wire.cut()
    page.wait_for_selector("text=Connection to the server was lost")
    wire.mend()
    wait_reloaded(page)
    playwright.expect(page.locator(BOX)).to_have_value(PROMPT)
    playwright.expect(page.locator("#tau input[type=number]")).to_have_value("0.4")
    page.wait_for_selector(f"{ROOT}:is([data-state=finished], [data-state=stopped])")
    assert page.inner_text(f"{ROOT} .rv-prompt") == PROMPT
    again = page.locator(f"{ROOT} .rv-pane[data-lane=ar] .rv-t").all_inner_texts()
    assert again[: len(text)] == text
    assert "visitor" not in page.inner_text(f"{ROOT} .rv-status")


def test_a_run_that_the_server_lost_is_named_and_its_prompt_stays(
    page: playwright.Page, wire: Wire, served_handlers: Handlers
) -> None:
    wire.cut()
    page.wait_for_selector("text=Connection to the server was lost")
    logs = served_handlers.live.logs
    logs._by_run.clear()  # as after a restart
    logs._latest.clear()
    wire.mend()
    wait_reloaded(page)
    wait_state(page, "error")
    assert "The server was restarted" in page.inner_text(f"{ROOT} .rv-status")
    assert page.input_value(BOX) == PROMPT


def test_a_page_opened_by_its_address_starts_fresh(page: playwright.Page, wire: Wire) -> None:
    page.goto(f"http://127.0.0.1:{wire.port}/")
    wait_loaded(page)
    page.wait_for_selector(f"{ROOT}[data-state=empty]")
    assert page.input_value(BOX) != PROMPT
