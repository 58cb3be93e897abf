"""A page without weights, served once for the tests that talk to it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import gradio as gr
import pytest
from batch_page import BatchBackend, make_page
from browser import Arrive, origin_of, playwright, visiting
from gradio.routes import App
from live_page import wait_loaded
from scripted_page import TEXT, ScriptedBackend, page_served

from app.handlers import Handlers

SHOWN = """() => {
  const boxes = [...document.querySelectorAll("textarea")].map((box) => JSON.stringify(box.value));
  return [location.href, document.body.innerText, ...boxes].join("\\n");
}"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Where a test fails that has a page, its report holds what stood on it."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and hasattr(page, "evaluate"):
        try:
            shown = page.evaluate(SHOWN)[:4000]
        except playwright.Error as error:
            shown = str(error)
        report.sections.append(("what the page shows", shown))
    return report


@pytest.fixture(scope="session", autouse=True)
def _an_app_where_it_is_served() -> Iterator[None]:
    """Gradio makes three apps of 150 routes for a page, of which only the last is used."""
    create = App.create_app

    def made(blocks: gr.Blocks, **options: Any) -> App | None:
        return None if options == {"mcp_server": False} else create(blocks, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(App, "create_app", staticmethod(made))
        yield


@pytest.fixture(scope="session")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Handlers, BatchBackend]]:
    made = make_page(tmp_path_factory.mktemp("page"), port=0)
    yield made
    made[0].engines.close()


@pytest.fixture(scope="session")
def _address(_served: tuple[Handlers, BatchBackend]) -> Iterator[str]:
    with page_served(_served[0]) as url:
        yield url


@pytest.fixture(scope="module")
def scripted_backend(_served: tuple[Handlers, BatchBackend]) -> BatchBackend:
    """What decodes for the page: it writes TEXT at once. Tests set how long a forward takes."""
    backend = _served[1]
    backend.text, backend.forward_seconds, backend.fails_at = TEXT, 0.001, 0
    backend.prompts.clear()
    return backend


@pytest.fixture(scope="module")
def served_handlers(_served: tuple[Handlers, BatchBackend]) -> Handlers:
    """What serves the page at ``address``."""
    return _served[0]


@pytest.fixture(scope="module")
def address(_address: str, scripted_backend: ScriptedBackend) -> str:
    """Where the page is served, with a slash at the end: one server for all files."""
    return _address


@pytest.fixture
def arrive() -> Iterator[Arrive]:
    """Open an address as a new visitor; script errors, dialogs and other servers are failures."""
    with visiting() as take:

        def open_page(url: str, width: int = 1440, height: int = 1000) -> playwright.Page:
            page = take(origin_of(url))
            page.set_viewport_size({"width": width, "height": height})
            page.goto(url)
            return page

        yield open_page


@pytest.fixture
def visit(arrive: Arrive, address: str) -> Arrive:
    """Open the page as a new visitor, and wait until its checkpoint is there."""

    def open_page(query: str = "", width: int = 1280, height: int = 900) -> playwright.Page:
        page = arrive(address + query, width, height)
        wait_loaded(page)
        return page

    return open_page
