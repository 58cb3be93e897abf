"""A page without weights, served once for the tests that talk to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser import Contexts, chromium, playwright
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
