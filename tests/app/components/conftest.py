"""Fixtures: a small Gradio page with a race view, a browser, and a way to show a scene in it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from browser import chromium, is_foreign, playwright
from panel_browser import still_page
from race_browser import ROOT, Show, play
from race_page import page as make_page
from race_scenes import SCENES

from app.components import bundle


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    blocks = make_page(SCENES)
    port = free_port()
    _, url, _ = blocks.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, server_port=port, head=bundle.head()
    )
    yield url
    blocks.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.BrowserContext]:
    """One context, so that pages share what the browser has fetched."""
    with chromium() as launched:
        context = launched.new_context()
        context.set_default_timeout(90_000)  # a busy machine is slow, not wrong
        yield context


@pytest.fixture(scope="module")
def still(browser: playwright.BrowserContext) -> Iterator[playwright.Page]:
    """One page for all checks of a module that put a run in at once; fails on script errors."""
    page = still_page(browser)
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    yield page
    page.close()
    assert troubles == []


@pytest.fixture
def show(browser: playwright.BrowserContext, address: str) -> Iterator[Show]:
    """Open the page and play a scene; fails on script errors, dialogs and foreign addresses."""
    troubles: list[str] = []
    opened = []

    def open_scene(
        scene: str, state: str = "finished", width: int = 1400, theme: str = "light"
    ) -> playwright.Page:
        page = browser.new_page()
        page.set_viewport_size({"width": width, "height": 1000})
        opened.append(page)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda r: _note_stranger(troubles, r.url, address))
        page.goto(f"{address}?__theme={theme}")
        page.wait_for_selector(f"{ROOT}[data-state=empty]", timeout=60_000)
        play(page, scene, state)
        return page

    yield open_scene
    for page in opened:
        page.close()
    assert troubles == []


def _note_stranger(troubles: list[str], url: str, address: str) -> None:
    if is_foreign(url, address):
        troubles.append(url)
