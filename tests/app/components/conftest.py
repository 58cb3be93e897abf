"""Fixtures: a small Gradio page with a race view, a browser, and a way to show a scene in it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from browser import listening, playwright, shared
from panel_browser import still_page
from race_browser import ROOT, Show, is_spoiled, play
from race_page import page as make_page
from race_scenes import SCENES

from app.components import assets


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    blocks = make_page(SCENES)
    port = free_port()
    _, url, _ = blocks.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, server_port=port, head=assets.head()
    )
    yield url
    blocks.close()


@pytest.fixture(scope="module")
def still() -> Iterator[playwright.Page]:
    """One page for all checks of a module that put a run in at once; fails on script errors."""
    with still_page() as page:
        yield page


@pytest.fixture(scope="session")
def opened() -> dict[str, playwright.Page]:
    """Pages by their theme: opening one costs more than most tests."""
    return {}


@pytest.fixture
def show(address: str, opened: dict[str, playwright.Page]) -> Iterator[Show]:
    """Play a scene, in a page that played others before unless a test spoiled it; fails on script
    errors, dialogs and foreign addresses."""
    used: list[playwright.Page] = []
    with listening() as listen:

        def open_scene(
            scene: str, state: str = "finished", width: int = 1400, theme: str = "light"
        ) -> playwright.Page:
            page = opened.pop(theme, None)
            if page is None or page.is_closed():
                page = shared().take()
            used.append(page)
            listen(page, address)
            page.emulate_media(reduced_motion="no-preference")
            page.set_viewport_size({"width": width, "height": 1000})
            if page.url == "about:blank":
                page.goto(f"{address}?__theme={theme}")
                page.wait_for_selector(f"{ROOT}[data-state=empty]", timeout=60_000)
            play(page, scene, state)
            return page

        yield open_scene
    for page in used:
        keep(page, opened)


def keep(page: playwright.Page, opened: dict[str, playwright.Page]) -> None:
    """For the next test, as a new visitor meets it; left where one is kept or it was spoiled."""
    theme = "dark" if "__theme=dark" in page.url else "light"
    if theme in opened or is_spoiled(page):
        shared().give_back(page)
        return
    page.evaluate("localStorage.clear(); sessionStorage.clear(); document.activeElement.blur()")
    page.mouse.move(0, 0)
    opened[theme] = page
