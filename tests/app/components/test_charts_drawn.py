"""A chart draws what a new page would draw, whatever was shown before, by plotly's SVG."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, see, settle
from race_browser import QUIET, ROOT, VIEW, put, renew

pytestmark = needs_browser
SCRIPTS = {
    "long": race_scenes.PROSE,
    "lossless": race_scenes.LOSSLESS,
    "slow": replace(race_scenes.PROSE, forward_seconds=0.02),  # as many passes as "long"
    "short": samples.Script("7", replace(race_scenes.START, tau=0.7)),
}
DRAWN = """root => [...document.querySelectorAll(`${root} figure[data-chart]`)].map((figure) => {
  const marks = [...figure.querySelectorAll(".main-svg path, .main-svg text, .main-svg rect")];
  const seen = marks.filter((mark) => mark.checkVisibility({ visibilityProperty: true })
    && !mark.closest("defs, .draglayer, .modebar, .hoverlayer, .zoomlayer"));
  const veil = figure.querySelector(".rv-later");
  return { chart: figure.dataset.chart,
    marks: seen.map((mark) => [mark.tagName, mark.textContent,
      ...[...mark.attributes].map(({ name, value }) => `${name}=${value}`).sort()].join(" ")),
    veil: veil.checkVisibility() ? veil.getAttribute("style")
      : figure.querySelector(".rv-dots").innerHTML };
})"""
AXIS_TITLE = re.compile(r"text .*class=[xy]title")


def value(shown: str) -> str:
    if shown == "waiting":
        return race_scenes.status("Waiting: 1 run is ahead of yours.", shown)
    return race_scenes.finished(SCRIPTS[shown], recorded="2026-11-20")


def scrub(page: playwright.Page, place: float | None) -> None:
    """Go to a share of the run, or to its end."""
    where = "Infinity" if place is None else f"{place} * {VIEW}.playhead.length"
    page.evaluate(f"{VIEW}.run && {VIEW}.player.seek({where})")


def drawn(page: playwright.Page) -> list[dict[str, Any]]:
    """What is in each chart, without plotly's ids, titles of the axes first."""
    page.wait_for_function(QUIET)
    found: list[dict[str, Any]] = page.evaluate(DRAWN, ROOT)
    for chart in found:
        marks = [re.sub(r"clip[0-9a-f]+xy", "clip", mark) for mark in chart["marks"]]
        chart["marks"] = sorted(marks, key=lambda mark: not AXIS_TITLE.match(mark))
    return found


def fresh(page: playwright.Page, shown: str, place: float | None = None) -> list[dict[str, Any]]:
    """What a view draws that has shown nothing else."""
    page.set_viewport_size({"width": 1280, "height": 1800})  # others than those in sight wait
    renew(page)
    put(page, value(shown))
    scrub(page, place)
    return drawn(page)


@pytest.mark.parametrize(
    ("past", "place", "shown"),
    [("long", None, "slow"), ("long", None, "waiting"), ("lossless", 0.4, "short")],
)
def test_what_is_drawn_knows_no_past(
    page: playwright.Page, past: str, place: float | None, shown: str
) -> None:
    expected = fresh(page, shown)
    renew(page)
    page.evaluate(f"value => {VIEW}.read(value)", value(past))
    if place is None:
        page.wait_for_function(QUIET)
    else:  # in the middle of it, and while the tab of the view is left
        scrub(page, place)
        page.evaluate("document.querySelector('#race').style.display = 'none'")
        settle(page)
    page.evaluate(f"{VIEW}.read('')")
    put(page, value(shown))
    page.evaluate("document.querySelector('#race').style.display = ''")
    settle(page)
    scrub(page, None)
    for chart, first in zip(drawn(page), expected, strict=True):
        assert chart["veil"] == first["veil"], chart["chart"]
        assert chart["marks"] == first["marks"], chart["chart"]


def test_a_fresh_page_draws_and_saves_a_picture(page: playwright.Page) -> None:
    """The rule above would hold of empty axes too."""
    sizes = [
        sum(len(chart["marks"]) for chart in fresh(page, name)) for name in ("waiting", "long")
    ]
    assert 0 < sizes[0] < sizes[1]
    scrub(page, 0.4)
    assert all(chart["veil"] for chart in drawn(page))
    chart = page.locator(f"{ROOT} [data-chart=forwards] .js-plotly-plot")
    see(chart)
    chart.hover()
    with page.expect_download() as download:
        chart.locator(".modebar-btn").click()  # the only one
    picture = Path(download.value.path()).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 2000
