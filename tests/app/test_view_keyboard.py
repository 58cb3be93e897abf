"""Every tab by keyboard: what Tab reaches, in which order, and how it is seen. Skipped where
Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from batch_page import make_page
from browser import needs_browser, opened, playwright
from keyboard import assert_complete, stops
from live_page import ROOT, open_tab, run, wait_loaded
from scripted_page import page_served

pytestmark = needs_browser
VIEWS = {
    "live": "#explain .ex-picture >> nth=0",
    "grid": "#grid .mars-grid[data-phase=finished] .main-svg >> nth=0",
    "throughput": "#throughput .mars-throughput[data-recorded-run=true] .tv-text span",
    "review": ".mars-review[data-phase=ready] .rv-pane >> nth=1",
}
"""View -> what is there when it shows its first result."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[playwright.Page]:
    handlers, _ = make_page(tmp_path_factory.mktemp("page"), port=0, max_new_tokens=40)
    with page_served(handlers) as url, opened(url) as visitor:
        wait_loaded(visitor)
        yield visitor


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_everything_downwards_with_a_visible_ring(
    page: playwright.Page, view: str
) -> None:
    open_tab(page, view)
    if view == "live":
        run(page, "Say it.")
        open_tab(page, "how-it-works")
    page.wait_for_selector(VIEWS[view])
    assert_complete(page, stops(page, view))


def test_escape_closes_what_is_open_and_returns_to_its_button(page: playwright.Page) -> None:
    open_tab(page, "live")
    focused = "node => node === document.activeElement"
    share = page.locator(f"{ROOT} .rv-top .ex-menu > summary")
    share.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{ROOT} .rv-top .ex-menu[open] button")
    page.keyboard.press("Tab")
    assert not share.evaluate(focused)
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{ROOT} .rv-top .ex-menu:not([open])")
    assert share.evaluate(focused)
