"""What a visitor sees of Live and Trade-off without scrolling, and reaches by
keyboard.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import needs_browser, opened, playwright
from keyboard import assert_complete, stops
from live_page import ROOT, open_tab, run, wait_loaded

from scripted_page import ScriptedBackend  # isort: skip

pytestmark = needs_browser
GRID = "#grid .mars-grid"
SHOWN = {
    "live": f"{ROOT}[data-state=finished]",
    "grid": f"{GRID}[data-phase=finished] .main-svg >> nth=0",
}
"""View -> what is there when it is complete."""


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}?max_new_tokens=40") as visitor:
        wait_loaded(visitor)
        yield visitor


@pytest.fixture(autouse=True)
def _quickly(scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.001


def see(page: playwright.Page, view: str, size: tuple[int, int]) -> None:
    """Open a view at the top of a window of this size."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_tab(page, view)
    page.wait_for_selector(SHOWN[view])
    page.evaluate("scrollTo(0, 0)")


def is_in_sight(page: playwright.Page, selector: str) -> bool:
    """Whether all of the first such element is in the window."""
    return page.locator(selector).first.evaluate(
        """(node) => {
          const { top, bottom } = node.getBoundingClientRect();
          return top >= 0 && bottom <= innerHeight;
        }"""
    )


@pytest.mark.parametrize("view", SHOWN)
def test_tab_reaches_everything_in_the_order_seen(page: playwright.Page, view: str) -> None:
    if view == "live":
        open_tab(page, view)
        run(page, "Say it.")
    see(page, view, (1440, 1000))
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
    opener = page.locator("#tau .help-button")
    opener.focus()
    page.keyboard.press("Enter")
    page.locator("#tau .help-text").wait_for(state="visible")
    page.keyboard.press("Escape")
    page.locator("#tau .help-text").wait_for(state="hidden")
    assert opener.evaluate(focused)
