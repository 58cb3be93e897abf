"""The page in a browser that forbids its storage, as a frame without third-party cookies does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Arrive, needs_browser
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

pytestmark = needs_browser

VIEW = ".mars-review"
FORBID = """
const refuse = () => { throw new DOMException("The operation is insecure.", "SecurityError"); };
for (const name of ["getItem", "setItem", "removeItem"]) Storage.prototype[name] = refuse;
IDBFactory.prototype.open = refuse;
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    handlers = make_handlers(tmp_path_factory.mktemp("page"), ScriptedBackend(TEXT), port=0)
    with page_served(handlers) as url:
        yield url


def test_review_opens_and_judges_without_storage(arrive: Arrive, address: str) -> None:
    page = arrive(f"{address}robots.txt")
    page.add_init_script(FORBID)
    page.goto(f"{address}#review=study")
    page.wait_for_selector(f"{VIEW}[data-phase=open] .rw-answer >> nth=1")
    page.click(f"{VIEW} .rw-answer >> nth=0")
    page.keyboard.press("a")
    page.wait_for_selector(f"{VIEW} [aria-pressed=true]")
