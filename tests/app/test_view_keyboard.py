"""Every tab by keyboard: what Tab reaches, and how it is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import needs_browser, opened, playwright
from live_page import TAB_OF, open_tab, run, wait_loaded

pytestmark = needs_browser
VIEWS = {
    "live": "#explain .ex-picture >> nth=0",
    "grid": "#grid .mars-grid[data-phase=finished] .main-svg >> nth=0",
    "throughput": "#throughput .mars-throughput[data-recorded-run=true] .tv-text span",
    "review": ".mars-review[data-phase=ready] .rv-pane >> nth=1",
}
"""View -> what is there when it shows its first result."""


REACHED = """() => {
  const node = document.activeElement;
  if (!node || !node.closest(".tabitem")) return null;
  node.dataset.reached = "true";
  const isHidden = getComputedStyle(node).opacity === "0";
  const shown = isHidden ? node.closest("label") : node;
  const { outlineStyle, outlineWidth } = getComputedStyle(shown);
  let opacity = 1;
  for (let each = shown; each; each = each.parentElement) opacity *= getComputedStyle(each).opacity;
  const name = node.getAttribute("aria-label") || node.innerText || node.id || "a control";
  const circle = node.querySelector(":scope > circle");
  const isCircled = circle !== null && getComputedStyle(circle).stroke !== "none";
  const isRing = isCircled || (outlineStyle !== "none" && parseFloat(outlineWidth) > 0);
  return { name, isSeen: isRing && opacity > 0.5 };
}"""
MISSED = """() => [...document.querySelectorAll(
  ".tabitem :is(button, a[href], input, select, textarea, summary, [tabindex='0'])")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.tabIndex >= 0
    && !node.disabled && node.type !== "radio" && node.role !== "tab" && !node.dataset.reached)
  .map((node) => node.outerHTML.slice(0, 120))"""


def assert_complete(page: playwright.Page, view: str) -> None:
    """Tab reaches everything in an open view, with a visible focus ring."""
    for chart in page.locator(f"#{view} [data-chart]:not([hidden]) .rv-plot").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".modebar-btn").first.wait_for(state="attached")
    page.focus(f"#{TAB_OF.get(view, view)}-tab-button")
    reached: list[dict[str, Any]] = []
    for _ in range(120):
        page.keyboard.press("Tab")
        stop = page.evaluate(REACHED)
        if stop is None:
            break
        reached.append(stop)
    assert len(reached) > 5
    unseen = [stop["name"] for stop in reached if not stop["isSeen"]]
    assert not unseen, unseen
    missed = page.evaluate(MISSED)
    assert not missed, missed


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}?max_new_tokens=40") as visitor:
        wait_loaded(visitor)
        yield visitor


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_everything(page: playwright.Page, view: str) -> None:
    open_tab(page, view)
    if view == "live":
        run(page, "Say it.")
        open_tab(page, "how-it-works")
    page.wait_for_selector(VIEWS[view])
    assert_complete(page, view)
