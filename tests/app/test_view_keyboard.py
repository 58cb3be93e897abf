"""Every view of Throughput and Review by keyboard: what Tab reaches, in which order, and how it is
seen. Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from batch_page import make_page
from browser import needs_browser, opened, playwright
from keyboard import assert_complete, stops
from live_page import open_tab, wait_loaded
from scripted_page import page_served

pytestmark = needs_browser
VIEWS = {
    "throughput": "#throughput .mars-throughput[data-recorded-run=true] .tv-text span",
    "review": ".mars-review[data-phase=ready] .rv-pane >> nth=1",
}
"""View -> what is there when it shows its first result."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[playwright.Page]:
    handlers, _ = make_page(tmp_path_factory.mktemp("page"), port=0)
    with page_served(handlers) as url, opened(url) as visitor:
        wait_loaded(visitor)
        yield visitor


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_everything_downwards_with_a_visible_ring(
    page: playwright.Page, view: str
) -> None:
    open_tab(page, view)
    page.wait_for_selector(VIEWS[view])
    assert_complete(page, stops(page, view))
