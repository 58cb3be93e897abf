"""A page without weights, served once for the tests that talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser import Arrive, Visitors, chromium, is_foreign, origin_of, playwright
from live_page import wait_loaded
from scripted_page import TEXT, ScriptedBackend, make_handlers

from app.handlers import Handlers


@pytest.fixture(scope="module")
def scripted_backend() -> ScriptedBackend:
    """Writes TEXT; tests set how long a forward takes."""
    return ScriptedBackend(TEXT)


@pytest.fixture(scope="module")
def served_handlers(
    tmp_path_factory: pytest.TempPathFactory, scripted_backend: ScriptedBackend
) -> Iterator[Handlers]:
    """What serves the page at ``address``."""
    made = make_handlers(tmp_path_factory.mktemp("page"), scripted_backend, port=0)
    yield made
    made.engines.close()


@pytest.fixture(scope="module")
def address(served_handlers: Handlers) -> Iterator[str]:
    """Where the page is served, with a slash at the end."""
    from app.serving.serve import serve

    page = serve(served_handlers, is_blocking=False)
    yield page.local_url
    page.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    """Debian's chromium, which the tests of a module share."""
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def visitors(browser: playwright.Browser) -> Visitors:
    """Where the visitors of a module open pages."""
    return Visitors(browser)


@pytest.fixture
def arrive(visitors: Visitors) -> Iterator[Arrive]:
    """Open an address as a new visitor; fails the test on script errors, dialogs and foreign
    addresses."""
    troubles: list[str] = []
    taken: list[tuple[playwright.Page, dict[str, Callable[..., object]]]] = []

    def open_page(url: str, width: int = 1440, height: int = 1000) -> playwright.Page:
        page, own = visitors.take(), origin_of(url)
        heard = {
            "pageerror": lambda error: troubles.append(str(error)),
            "dialog": lambda dialog: (troubles.append(dialog.message), dialog.dismiss()),
            "request": lambda r: is_foreign(r.url, own) and troubles.append(r.url),
        }
        taken.append((page, heard))
        for event, hear in heard.items():
            page.on(event, hear)
        page.set_viewport_size({"width": width, "height": height})
        page.goto(url)
        return page

    yield open_page
    for page, heard in taken:
        for event, hear in heard.items():
            page.remove_listener(event, hear)
        visitors.give_back(page)
    assert troubles == []


@pytest.fixture
def visit(arrive: Arrive, address: str) -> Arrive:
    """Open the page as a new visitor, and wait until its checkpoint is there."""

    def open_page(query: str = "", width: int = 1280, height: int = 900) -> playwright.Page:
        page = arrive(address + query, width, height)
        wait_loaded(page)
        return page

    return open_page
