"""A chart draws what a new page would draw for the same trace, regardless of what was shown before.

The tests read plotly's SVG, not the figure passed to it, because leftovers of earlier drawings
count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, see
from panel_browser import ROOT, VIEW, put, put_scene, settle, still_page
from race_browser import AR

from app.ui.views import RaceView
from mars_runtime import web
from mars_runtime.events import Event, Step
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
QUIET = f"""() => {{ const {{ charts, feed, frame }} = {VIEW};
  const isDrawn = !charts.run || (!charts.dirty.size && !charts.timer);
  return isDrawn && !frame && !feed.lines.length; }}"""


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


def zoom(page: playwright.Page) -> None:
    """Look at a part of each chart, as a drag over it does."""
    page.wait_for_function(QUIET)
    page.evaluate(f"""() => Object.values({VIEW}.charts.nodes).forEach(({{ node }}) => node.data
      && Plotly.relayout(node, {{ "xaxis.range[0]": 1, "xaxis.range[1]": 3 }}))""")


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
    """The rule below would hold of empty charts too."""
    shown = ["long", "begun", "waiting"]
    sizes = {name: sum(len(chart["marks"]) for chart in fresh[name, None]) for name in shown}
    assert sizes["waiting"] == 0
    assert sizes["long"] > 30 < sizes["begun"]
    assert all(chart["veil"] for chart in fresh["long", 0.4])


def shapes_of(charts: list[dict[str, Any]], name: str) -> list[str]:
    (chart,) = [chart for chart in charts if chart["chart"] == name]
    return [mark for mark in chart["marks"] if "data-index" in mark]


def test_marks_at_one_place_do_not_cut_each_other_out(fresh: Fresh) -> None:
    """Neighbouring bars of one height are one mark, not none."""
    filled = [mark for mark in shapes_of(fresh["maths", None], "forwards") if "opacity: 1" in mark]
    assert any("fill-opacity: 1" in mark for mark in filled)
    assert all('fill-rule="nonzero"' in mark for mark in filled if "fill-opacity: 1" in mark)


@pytest.mark.parametrize(
    ("past", "shown", "place"),
    [
        ([("run", "long"), ("rest", None)], "short", None),
        ([("run", "one"), ("zoom", None)], "short", None),
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
        "zoom": lambda _: zoom(page),
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


BOX = """node => { const { left, right, top, bottom } = node.getBoundingClientRect();
  return { left, right, top, bottom }; }"""


@pytest.fixture(scope="module")
def race(page: playwright.Page) -> playwright.Page:
    """A finished race with its charts."""
    renew(page)
    put_scene(page, "prose")
    see(page.locator(f"{ROOT} .rv-charts"))
    page.wait_for_function(QUIET)
    return page


def steps(lane: str) -> list[Step]:
    """The forwards of the race on show."""
    events: list[Event] = list(samples.read(samples.lanes(race_scenes.PROSE)[lane]).events)
    return [event for event in events if isinstance(event, Step)]


def chart(key: str) -> str:
    return f"{ROOT} [data-chart={key}]"


def test_axes_fit_the_run_once_it_is_over(race: playwright.Page) -> None:
    for key in ("forwards", "time"):
        plot = race.locator(f"{chart(key)} .nsewdrag").first.evaluate(BOX)
        ranges = race.evaluate(f"{VIEW}.charts.nodes.{key}.node._fullLayout.xaxis.range")
        assert ranges == [0, pytest.approx(sum(step.seconds for step in steps("ar")))]
    bars = race.locator(f"{chart('forwards')} .shapelayer path").evaluate_all(
        f"l => l.filter((n) => n.style.fillOpacity === '1').map({BOX})"  # the means are lines
    )
    share = sum(step.seconds for step in steps("mars")) / sum(step.seconds for step in steps("ar"))
    plot = race.locator(f"{chart('forwards')} .nsewdrag").first.evaluate(BOX)
    end = plot["left"] + share * (plot["right"] - plot["left"])
    assert max(bar["right"] for bar in bars) == pytest.approx(end, abs=3)


def test_pointing_at_the_other_lane_in_a_chart_lights_its_text(race: playwright.Page) -> None:
    plot = race.locator(f"{chart('time')} .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    axis = f"{VIEW}.charts.nodes.time.node._fullLayout.yaxis"
    tenth = list(accumulate(step.seconds for step in steps("ar")))[-2]
    x = box["width"] * tenth / sum(step.seconds for step in steps("ar"))
    y = race.evaluate(f"{axis}.l2p({len(steps('ar'))})")
    race.mouse.move(box["x"] + x + 1, box["y"] + y)
    settle(race)
    assert race.locator(f"{AR} .rv-c.rv-on").count() == 1
    assert race.locator(f"{ROOT} .rv-cursor:visible").count() == 2
    race.mouse.move(0, 0)
    settle(race)
    assert race.locator(f"{ROOT} .rv-cursor:visible").count() == 0


def test_where_the_faster_lane_ended_the_others_place_is_kept(race: playwright.Page) -> None:
    end = sum(step.seconds for step in steps("mars"))
    clocks = accumulate(step.seconds for step in steps("ar"))
    tokens = sum(clock <= end for clock in clocks)
    marked = race.locator(f"{ROOT} [data-finish]")
    assert marked.evaluate_all("l => l.map((n) => [n.rvToken, n.dataset.finish])") == [
        [tokens - 1, "MARS finished"]
    ]
    assert marked.evaluate("n => n.closest('.rv-pane').dataset.lane") == "ar"
    notes = race.locator(f"{chart('time')} .annotation text").all_text_contents()
    assert f"MARS finished, plain AR at {tokens}" in notes
    left = race.locator(f"{ROOT} .pl-finish").evaluate("n => parseFloat(n.style.left)")
    whole = sum(step.seconds for step in steps("ar"))
    assert left == pytest.approx(100 * end / whole, abs=0.01)
    title = race.locator(f"{ROOT} [data-finish]")
    num = len(steps("mars"))
    race.click(".rv-clock button >> text=Passes")
    settle(race)
    assert title.get_attribute("title") == f"MARS finished here (pass {num})"
    put(race, value("long"))  # a run that begins on this clock
    settle(race)
    assert title.get_attribute("title") == f"MARS finished here (pass {num})"
    race.click(".rv-clock button >> text=Seconds")
    settle(race)
    assert title.get_attribute("title") == f"MARS finished here ({end:.3f} s)"
    *_, running = race_scenes.running(race_scenes.PROSE, 30)()
    put(race, running)  # without a winner nothing is marked
    assert race.locator(f"{ROOT} [data-finish]").count() == 0
    assert race.locator(f"{ROOT} .pl-finish").is_hidden()
