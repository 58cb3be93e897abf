"""Fixtures: a small Gradio page with a race view, a browser, and a way to show a scene in it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from browser import chromium, is_foreign, playwright
from panel_browser import still_page
from race_browser import ROOT, Show, is_spoiled, play
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


@pytest.fixture(scope="module")
def opened(browser: playwright.BrowserContext) -> Iterator[dict[str, playwright.Page]]:
    """The pages of a module by their theme: opening one costs more than most tests."""
    pages: dict[str, playwright.Page] = {}
    yield pages
    for page in pages.values():
        page.close()


@pytest.fixture
def show(
    browser: playwright.BrowserContext, address: str, opened: dict[str, playwright.Page]
) -> Iterator[Show]:
    """Play a scene, in a page that played others before unless a test spoiled it; fails on script
    errors, dialogs and foreign addresses."""
    troubles: list[str] = []
    heard = {
        "pageerror": lambda error: troubles.append(str(error)),
        "dialog": lambda dialog: (troubles.append(dialog.message), dialog.dismiss()),
        "request": lambda r: is_foreign(r.url, address) and troubles.append(r.url),
    }
    used: list[playwright.Page] = []

    def open_scene(
        scene: str, state: str = "finished", width: int = 1400, theme: str = "light"
    ) -> playwright.Page:
        page = opened.pop(theme, None) or browser.new_page()
        used.append(page)
        page.set_viewport_size({"width": width, "height": 1000})
        for event, hear in heard.items():
            page.on(event, hear)
        if page.url == "about:blank":
            page.goto(f"{address}?__theme={theme}")
            page.wait_for_selector(f"{ROOT}[data-state=empty]", timeout=60_000)
        play(page, scene, state)
        return page

    yield open_scene
    for page in used:
        for event, hear in heard.items():
            page.remove_listener(event, hear)
        keep(page, opened)
    assert troubles == []


def keep(page: playwright.Page, opened: dict[str, playwright.Page]) -> None:
    """For the next test, as a new visitor meets it; closed where one is kept or it was spoiled."""
    theme = "dark" if "__theme=dark" in page.url else "light"
    if theme in opened or is_spoiled(page):
        page.close()
        return
    page.evaluate("localStorage.clear(); sessionStorage.clear(); document.activeElement.blur()")
    page.emulate_media(reduced_motion="null")
    page.mouse.move(0, 0)
    opened[theme] = page
