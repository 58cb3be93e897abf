"""Walks the page by keyboard: what Tab reaches, in which order, and how it is seen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from browser import playwright
from live_page import TAB_OF

REACHED = """() => {
  const node = document.activeElement;
  if (!node || !node.closest(".tabitem")) return null;
  node.dataset.reached = "true";
  const { x, y, width, height } = node.getBoundingClientRect();
  const isHidden = getComputedStyle(node).opacity === "0";
  const shown = isHidden ? node.closest("label") : node;
  const { outlineStyle, outlineWidth } = getComputedStyle(shown);
  let opacity = 1;
  for (let each = shown; each; each = each.parentElement) opacity *= getComputedStyle(each).opacity;
  const name = node.getAttribute("aria-label") || node.innerText || node.id || "a control";
  const circle = node.querySelector(":scope > circle");
  const isCircled = circle !== null && getComputedStyle(circle).stroke !== "none";
  const isRing = isCircled || (outlineStyle !== "none" && parseFloat(outlineWidth) > 0);
  return { name, x, y: y + scrollY, width, height, isSeen: isRing && opacity > 0.5 };
}"""
MISSED = """() => [...document.querySelectorAll(
  ".tabitem :is(button, a[href], input, select, textarea, summary, [tabindex='0'])")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.tabIndex >= 0
    && !node.disabled && node.type !== "radio" && node.role !== "tab" && !node.dataset.reached)
  .map((node) => node.outerHTML.slice(0, 120))"""
Stop = dict[str, Any]
"""Name and place of an element that Tab reached, and whether its focus ring is visible."""


def stops(page: playwright.Page, view: str) -> list[Stop]:
    """Return what Tab reaches in an open view, in its order."""
    for chart in page.locator(f"#{view} [data-chart]:not([hidden]) .rv-plot").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".modebar-btn").first.wait_for(state="attached")
    page.focus(f"#{TAB_OF.get(view, view)}-tab-button")
    reached: list[Stop] = []
    for _ in range(120):
        page.keyboard.press("Tab")
        stop = page.evaluate(REACHED)
        if stop is None:
            break
        reached.append(stop)
    return reached


def assert_complete(page: playwright.Page, reached: list[Stop]) -> None:
    """Check that every control was reached, downwards and to the right, with a visible ring."""
    assert len(reached) > 5
    unseen = [stop["name"] for stop in reached if not stop["isSeen"]]
    assert not unseen, unseen
    missed = page.evaluate(MISSED)
    assert not missed, missed
    backwards = [
        (before["name"], stop["name"])
        for before, stop in pairwise(reached)
        if is_above(stop, before) or is_left(stop, before)
    ]
    assert not backwards, backwards


def is_above(stop: Stop, other: Stop) -> bool:
    """Whether a stop is above another one in the same column."""
    is_beside = stop["x"] >= other["x"] + other["width"] or other["x"] >= stop["x"] + stop["width"]
    return not is_beside and stop["y"] + stop["height"] <= other["y"]


def is_left(stop: Stop, other: Stop) -> bool:
    """Whether a stop is left of another one in the same row."""
    middle = stop["y"] + stop["height"] / 2
    is_same_row = other["y"] <= middle <= other["y"] + other["height"]
    return is_same_row and stop["x"] + stop["width"] <= other["x"]
