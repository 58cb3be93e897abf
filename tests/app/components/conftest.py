"""Fixtures: a small Gradio page with a race view, a browser, and a way to show a scene in it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from browser import listening, playwright, shared
from panel_browser import VIEW, put_scene, still_page
from race_browser import ROOT, Show, play
from race_page import LAUNCHED
from race_page import page as make_page
from race_scenes import SCENES


def free_port() -> int:
    """Return a port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    blocks = make_page(SCENES)
    port = free_port()
    _, url, _ = blocks.launch(
        prevent_thread_lock=True, quiet=True, ssr_mode=False, server_port=port, **LAUNCHED
    )
    yield url
    blocks.close()


@pytest.fixture(scope="module")
def still() -> Iterator[playwright.Page]:
    """One page for all checks of a module that put a run in at once; fails on script errors."""
    with still_page() as page:
        yield page


@pytest.fixture(scope="session")
def opened() -> list[playwright.Page]:
    """The page of the tests before, if there is one: opening it costs more than most tests."""
    return []


@pytest.fixture
def show(address: str, opened: list[playwright.Page]) -> Iterator[Show]:
    """Play a scene, in the page that played others before: one that is sent at once is put into it.
    Fails on script errors, dialogs and foreign addresses."""
    used: list[playwright.Page] = []
    with listening() as listen:

        def open_scene(scene: str, state: str = "finished", width: int = 1400) -> playwright.Page:
            page = opened.pop() if opened else shared().take()
            used.append(page)
            listen(page, address)
            page.emulate_media(reduced_motion="no-preference")
            page.set_viewport_size({"width": width, "height": 1000})
            is_new = page.url == "about:blank"
            if is_new:
                page.goto(f"{address}?__theme=light")
                page.wait_for_selector(f"{ROOT}[data-state=empty]", timeout=60_000)
            if is_new or state != "finished":
                play(page, scene, state)
            else:
                put_scene(page, scene)
            return page

        yield open_scene
    for page in used:
        keep(page, opened)


def keep(page: playwright.Page, opened: list[playwright.Page]) -> None:
    """For the next test, as a new visitor meets it."""
    page.evaluate(FORGET)
    page.mouse.move(0, 0)
    opened.append(page)


FORGET = f"""() => {{
  localStorage.clear();
  sessionStorage.clear();
  document.activeElement.blur();
  document.body.classList.remove("dark");
  document.querySelector("{ROOT}").style.width = "";
  const view = {VIEW};
  if (view.usual) view.missed = view.usual;
}}"""
"""What a test may change of the page itself is as it was."""
