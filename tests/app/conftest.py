"""A page without weights, served once for the tests that talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser import Arrive, Contexts, chromium, is_foreign, origin_of, playwright
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
def shared_contexts(browser: playwright.Browser) -> Contexts:
    """Where the visitors of a module open pages."""
    return Contexts(browser)


@pytest.fixture
def new_context(shared_contexts: Contexts) -> Iterator[Callable[[], playwright.BrowserContext]]:
    """Gives a context for each visitor of a test; see Contexts."""
    taken: list[playwright.BrowserContext] = []

    def take() -> playwright.BrowserContext:
        taken.append(shared_contexts.take())
        return taken[-1]

    yield take
    for context in taken:
        shared_contexts.give_back(context)


@pytest.fixture
def arrive(new_context: Callable[[], playwright.BrowserContext]) -> Iterator[Arrive]:
    """Open an address as a new visitor; fails the test on script errors, dialogs and foreign
    addresses."""
    troubles: list[str] = []

    def open_page(url: str, width: int = 1440, height: int = 1000) -> playwright.Page:
        page = new_context().new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        own = origin_of(url)
        page.on("request", lambda r: is_foreign(r.url, own) and troubles.append(r.url))
        page.goto(url)
        return page

    yield open_page
    assert troubles == []


@pytest.fixture
def visit(arrive: Arrive, address: str) -> Arrive:
    """Open the page as a new visitor, and wait until its checkpoint is there."""

    def open_page(query: str = "", width: int = 1280, height: int = 900) -> playwright.Page:
        page = arrive(address + query, width, height)
        wait_loaded(page)
        return page

    return open_page
