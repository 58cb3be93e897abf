"""Every view of Throughput and Review by keyboard: what Tab reaches, in which order, and how it is
seen. Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from batch_page import make_page
from browser import needs_browser, opened, playwright
from live_page import open_tab, wait_loaded
from scripted_page import page_served

pytestmark = needs_browser
VIEWS = {
    "batch": "#batch .mars-batch[data-phase=finished]",
    "load": "#load .mars-load[data-phase=finished]",
    "compare": "#compare .cv-texts .rv-pane >> nth=2",
    "sets": ".mars-review[data-phase=open] .rw-answer >> nth=1",
    "stability": "#stability .mars-stability[data-phase=finished]",
}
"""View -> what is there when it shows its first result."""
REACHED = """() => {
  const node = document.activeElement;
  if (!node || !node.closest(".tabitem")) return null;
  node.dataset.reached = "true";
  const { x, y, width, height } = node.getBoundingClientRect();
  const { outlineStyle, outlineWidth } = getComputedStyle(node);
  let opacity = 1;
  for (let each = node; each; each = each.parentElement) opacity *= getComputedStyle(each).opacity;
  const name = node.getAttribute("aria-label") || node.innerText || node.id || node.className;
  const isRing = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
  return { name, x, y: y + scrollY, width, height, isSeen: isRing && opacity > 0.5 };
}"""
MISSED = """() => [...document.querySelectorAll(
  ".tabitem :is(button, a[href], input, select, textarea, summary, [tabindex='0'])")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.tabIndex >= 0
    && !node.disabled && node.type !== "radio" && node.role !== "tab" && !node.dataset.reached)
  .map((node) => node.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[playwright.Page]:
    handlers, _ = make_page(tmp_path_factory.mktemp("page"), port=0)
    with page_served(handlers) as url, opened(url) as visitor:
        wait_loaded(visitor)
        yield visitor


def stops(page: playwright.Page, view: str) -> list[dict[str, Any]]:
    """Return what Tab reaches in a view, in its order."""
    open_tab(page, view)
    page.wait_for_selector(VIEWS[view])
    for chart in page.locator(".rv-plot:visible").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".modebar-btn").first.wait_for(state="attached")
    page.focus(f"#{view}-tab-button")
    reached = []
    for _ in range(100):
        page.keyboard.press("Tab")
        stop = page.evaluate(REACHED)
        if stop is None:
            break
        reached.append(stop)
    return reached


def is_above(stop: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a stop is above another one in the same column."""
    is_beside = stop["x"] >= other["x"] + other["width"] or other["x"] >= stop["x"] + stop["width"]
    return not is_beside and stop["y"] + stop["height"] <= other["y"]


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_everything_downwards_with_a_visible_ring(
    page: playwright.Page, view: str
) -> None:
    reached = stops(page, view)
    assert len(reached) > 5
    assert [stop["name"] for stop in reached if not stop["isSeen"]] == []
    assert page.evaluate(MISSED) == []
    upwards = [
        (before["name"], stop["name"])
        for before, stop in pairwise(reached)
        if is_above(stop, before)
    ]
    assert upwards == []


def test_escape_closes_a_menu_and_returns_to_its_button(page: playwright.Page) -> None:
    open_tab(page, "compare")
    page.wait_for_selector(VIEWS["compare"])
    button = page.locator("#compare .cv-comparehead summary")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#compare .cv-comparehead details[open] button")
    page.keyboard.press("Tab")
    assert not button.evaluate("node => node === document.activeElement")
    page.keyboard.press("Escape")
    page.wait_for_selector("#compare .cv-comparehead details:not([open])")
    assert button.evaluate("node => node === document.activeElement")


def test_run_is_in_sight_where_the_controls_are_higher_than_the_window(
    page: playwright.Page,
) -> None:
    page.set_viewport_size({"width": 1280, "height": 600})
    for view in ("batch", "load"):
        open_tab(page, view)
        page.evaluate("scrollTo(0, 0)")
        box = page.locator(f"#{view}-run").bounding_box()
        assert box
        assert box["y"] + box["height"] <= 600
    page.set_viewport_size({"width": 1440, "height": 1000})
