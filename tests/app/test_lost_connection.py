"""What a visitor keeps when the connection or the server is lost in the middle of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import LOADED, ROOT, begin, wait_loaded, wait_state
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from wire import Wire, port_of

pytestmark = needs_browser
PROMPT = "A prompt that nobody wants to type twice."
OTHER = "A prompt typed after the reload."
BOX = "#prompt textarea"


@pytest.fixture
def wire(address: str) -> Iterator[Wire]:
    with closing(Wire(port_of(address))) as made:
        yield made


@pytest.fixture
def page(
    arrive: Arrive, wire: Wire, scripted_backend: ScriptedBackend
) -> Iterator[playwright.Page]:
    """The page in the middle of a run, with a prompt and settings that it does not open with."""
    scripted_backend.forward_seconds = 0.1  # a minute, so that it does not end early
    made = arrive(f"http://127.0.0.1:{wire.port}/?tau=0.4&max_new_tokens=512")
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
    page: playwright.Page, wire: Wire, scripted_backend: ScriptedBackend
) -> None:
    text = page.locator(f"{ROOT} .rv-pane[data-lane=ar] .rv-t").all_inner_texts()
    wire.cut()
    page.wait_for_selector("text=Connection to the server was lost")
    scripted_backend.forward_seconds = 0.001
    wire.mend()
    wait_reloaded(page)
    playwright.expect(page.locator(BOX)).to_have_value(PROMPT)
    playwright.expect(page.locator("#tau input[type=number]")).to_have_value("0.4")
    page.wait_for_selector(f"{ROOT}:is([data-state=finished], [data-state=stopped])")
    assert page.inner_text(f"{ROOT} .rv-prompt") == PROMPT
    again = page.locator(f"{ROOT} .rv-pane[data-lane=ar] .rv-t").all_inner_texts()
    assert again[: len(text)] == text
    page.goto(f"http://127.0.0.1:{wire.port}/")  # a fresh page forgets
    wait_loaded(page)
    assert page.input_value(BOX) != PROMPT


def test_a_reload_restores_before_the_server_answers_and_a_lost_run_is_named(
    page: playwright.Page, wire: Wire, scripted_backend: ScriptedBackend, tmp_path: Path
) -> None:
    """What is typed after a reload is not replaced, even if the server is slow. Then another server
    is at the address, as after a restart."""
    held: list[playwright.Route] = []
    server = re.compile(r"/gradio_api/(run|queue/join)")
    page.route(server, lambda route: held.append(route))
    page.reload()
    playwright.expect(page.locator(BOX)).to_have_value(PROMPT)
    page.fill(BOX, OTHER)
    assert held
    scripted_backend.forward_seconds = 0.001
    for route in held:
        route.continue_()
    page.unroute(server)
    page.wait_for_function(LOADED)
    page.wait_for_selector(f"{ROOT}:is([data-state=finished], [data-state=stopped])")
    playwright.expect(page.locator(BOX)).to_have_value(OTHER)
    scripted_backend.forward_seconds = 0.1
    begin(page, lambda: page.click("#run"))
    page.evaluate("window.isOld = true")
    wire.cut()
    page.wait_for_selector("text=Connection to the server was lost")
    with page_served(make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)) as restarted:
        wire.mend(port_of(restarted))
        page.wait_for_function("!window.isOld")
        wait_state(page, "error")
        assert page.inner_text(f"{ROOT} .rv-status")
        assert page.input_value(BOX) == OTHER
        page.goto("about:blank")
