"""A chart draws what a new page would draw for the same trace, regardless of what was shown before.

The tests read plotly's SVG, not the figure passed to it, because leftovers of earlier drawings
count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import ROOT, VIEW, put, settle, still_page
from race_browser import CHARTS_REST

from app.ui.views import RaceView
from mars_runtime.display import web
from mars_runtime.settings import DecodeSettings

pytestmark = needs_browser


SHORT = samples.Script("7", replace(race_scenes.START, tau=0.7))
SCRIPTS = {
    "long": race_scenes.PROSE,
    "lossless": race_scenes.LOSSLESS,
    "maths": race_scenes.MATHS,
    "one": samples.Script("Seven apples are left.", DecodeSettings(tau=1.0, block_size=1)),
    "short": SHORT,
}
DRAWN = """root => [...document.querySelectorAll(`${root} figure[data-chart]`)].map((figure) => {
  const marks = [...figure.querySelectorAll(".main-svg path, .main-svg text, .main-svg rect")];
  const seen = marks.filter((mark) => mark.checkVisibility({ visibilityProperty: true })
    && !mark.closest("defs, .draglayer, .modebar, .hoverlayer, .zoomlayer"));
  const veil = figure.querySelector(".rv-later");
  return { chart: figure.dataset.chart,
    marks: seen.map((mark) => mark.outerHTML),
    veil: veil.checkVisibility() ? veil.getAttribute("style") : "" };
})"""
TALL = {"width": 1280, "height": 1800}
"""Both charts are in sight: others are not drawn."""
AXIS_TITLE = re.compile('<text class="[xy]title"')
QUIET = f"{CHARTS_REST} && !{VIEW}.reader.lines.length"


def value(shown: str) -> str:
    """The value of the race view for one of SCRIPTS, "begun" or a message."""
    if shown == "begun":
        *_, last = race_scenes.running(race_scenes.PROSE, 30)()
    elif shown in SCRIPTS:
        (last,) = race_scenes.finished(SCRIPTS[shown], recorded="2026-11-20")()
    else:
        (last,) = race_scenes.status("Waiting: 1 run is ahead of yours.", shown)()
    return last


def renew(page: playwright.Page) -> None:
    """A view that has shown nothing, in the place of the one that is there."""
    page.evaluate(
        """template => {
      const host = document.querySelector("#race");
      host.innerHTML = template;
      host.style.display = "";
      window.mars.mountRaceView(host, { value: "" }, () => {});
    }""",
        RaceView.template(""),
    )


def scrub(page: playwright.Page, place: float | None) -> None:
    """Go to a share of the run, or to its end."""
    where = "Infinity" if place is None else f"{place} * {VIEW}.playhead.length"
    page.evaluate(f"{VIEW}.run && {VIEW}.player.seek({where})")


def tab(page: playwright.Page, is_open: bool) -> None:
    """Leave the tab of the view, or come back to it."""
    page.evaluate(f"document.querySelector('#race').style.display = '{'' if is_open else 'none'}'")
    settle(page)


def drawn(page: playwright.Page) -> list[dict[str, object]]:
    """Return what is in each chart, without the ids that plotly assigns per page.

    The titles of the axes come first. Plotly adds them before or after the labels, depending on
    which of its tasks ran first; they do not overlap, so the order is not visible.
    """
    page.wait_for_function(QUIET)
    drawn = page.evaluate(DRAWN, ROOT)
    for chart in drawn:
        marks = [re.sub(r"clip[0-9a-f]+xy", "clip", mark) for mark in chart["marks"]]
        chart["marks"] = sorted(marks, key=lambda mark: not AXIS_TITLE.match(mark))
    return drawn


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """The race view by itself, with plotly."""
    with still_page(plotly=web.plotly_file()) as made:
        made.set_viewport_size(TALL)
        yield made


class Fresh(dict[tuple[str, float | None], list[dict[str, Any]]]):
    """(shown, place) -> what a view draws of it that has shown nothing else."""

    def __init__(self, page: playwright.Page) -> None:
        super().__init__()
        self.page = page

    def __repr__(self) -> str:
        return "Fresh(...)"

    def __missing__(self, key: tuple[str, float | None]) -> list[dict[str, Any]]:
        shown, place = key
        renew(self.page)
        put(self.page, value(shown))
        scrub(self.page, place)
        self[key] = drawn(self.page)
        return self[key]


@pytest.fixture(scope="module")
def fresh(page: playwright.Page) -> Fresh:
    return Fresh(page)


def test_a_fresh_page_draws_what_was_decoded(fresh: Fresh) -> None:
    """The rule below would hold of empty axes too."""
    shown = ["long", "begun", "waiting"]
    sizes = {name: sum(len(chart["marks"]) for chart in fresh[name, None]) for name in shown}
    assert 0 < sizes["waiting"] < min(sizes["long"], sizes["begun"])
    assert all(chart["veil"] for chart in fresh["long", 0.4])


@pytest.mark.parametrize(
    ("past", "shown", "place"),
    [
        ([("run", "long"), ("rest", None)], "short", None),
        ([("run", "long"), ("rest", None)], "waiting", None),
        (
            [("run", "lossless"), ("scrub", 0.4), ("leave", None), ("run", "begun")],
            "one",
            0.4,
        ),
    ],
)
def test_what_is_drawn_knows_no_past(
    page: playwright.Page,
    fresh: Fresh,
    past: list[tuple[str, Any]],
    shown: str,
    place: float | None,
) -> None:
    expected = fresh[shown, place]
    renew(page)
    acts: dict[str, Callable[[Any], object]] = {
        "run": lambda name: page.evaluate(f"value => {VIEW}.read(value)", value(name)),
        "scrub": lambda where: scrub(page, where),
        "leave": lambda _: tab(page, False),
        "rest": lambda _: page.wait_for_function(QUIET),
    }
    for act, data in past:
        acts[act](data)
    page.evaluate(f"{VIEW}.read('')")
    put(page, value(shown))
    tab(page, True)
    scrub(page, place)
    for chart, first in zip(drawn(page), expected, strict=True):
        assert chart["veil"] == first["veil"], chart["chart"]
        assert set(chart["marks"]) - set(first["marks"]) == set(), f"{chart['chart']} keeps these"
        assert chart["marks"] == first["marks"], chart["chart"]
