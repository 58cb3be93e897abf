"""What a visitor keeps when the connection or the server is lost in the middle of a run."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import LOADED, ROOT, begin, start, wait_loaded, wait_state
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served


def port_of(url: str) -> int:
    """Return the port of an address."""
    return int(url.rstrip("/").rsplit(":", 1)[1])


class Wire:
    """A TCP relay to a port of this machine. It refuses connections while ``is_cut``."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close every connection, and refuse new ones."""
        self.is_cut = True
        for item in self._open:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_cut:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.target))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_relay, args=pair, daemon=True).start()


def _relay(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


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
    start(made, PROMPT)
    yield made
    scripted_backend.forward_seconds = 0.001


def test_a_cut_connection_loses_neither_prompt_nor_answer(
    page: playwright.Page, wire: Wire, scripted_backend: ScriptedBackend
) -> None:
    text = page.locator(f"{ROOT} .rv-pane[data-lane=ar] .rv-t").all_inner_texts()
    wire.cut()
    page.wait_for_selector("text=Connection to the server was lost")
    scripted_backend.forward_seconds = 0.001
    wire.is_cut = False
    page.wait_for_function("performance.getEntriesByType('navigation')[0].type === 'reload'")
    page.wait_for_function(LOADED)
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
    """What is typed after a reload stays. Then the server restarts."""
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
        wire.target, wire.is_cut = port_of(restarted), False
        page.wait_for_function("!window.isOld")
        wait_state(page, "error")
        assert page.inner_text(f"{ROOT} .rv-status")
        assert page.input_value(BOX) == OTHER
        page.goto("about:blank")
