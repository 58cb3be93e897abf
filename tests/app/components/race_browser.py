"""The race view by itself in a browser, without a server: how tests put runs into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import race_scenes
import sample_traces as samples
from browser import playwright, see, visiting

from app.ui import assets
from app.ui.views import RaceView
from mars_runtime.display import web
from mars_runtime.runs import folds
from mars_runtime.runs.events import RowStep

ROOT = "#race .mars-race"
VIEW = f"document.querySelector('{ROOT}').lineView"
MARS = '.rv-pane[data-lane="mars"]'
AR = '.rv-pane[data-lane="ar"]'
CHARTS_REST = (
    f"(!{VIEW}.frame && {VIEW}.charts.charts.every(({{ plot }}) => !plot.isDue && !plot.timer))"
)
QUIET = f"{CHARTS_REST} && !{VIEW}.reader.lines.length"
"""All lines are read, and the charts that are in sight contain them."""
HOST = """<!doctype html><title>race</title><script>{}</script>{}<body>
<div id="race">{}</div><script>
window.mars.mountRaceView(document.querySelector("#race"), {{ value: "" }}, () => {{}});</script>"""
RENEW = """template => {
  const host = document.querySelector("#race");
  host.innerHTML = template;
  host.style.display = "";
  window.mars.mountRaceView(host, { value: "" }, () => {});
}"""


@contextmanager
def still_page(has_plotly: bool = True) -> Iterator[playwright.Page]:
    """A page that shows what is ``put`` into it; fails on script errors."""
    with visiting() as take:
        page = take("about:blank")
        page.set_viewport_size({"width": 1400, "height": 1000})
        file = web.plotly_file() if has_plotly else None
        script = file.read_text("utf-8") if file else ""
        page.set_content(HOST.format(script, assets.head(), RaceView.template("")))
        yield page


def renew(page: playwright.Page) -> None:
    """Put a view that has shown nothing in the place of the one that is there."""
    page.evaluate(RENEW, RaceView.template(""))


def put(page: playwright.Page, value: str) -> None:
    """Show a value as the server would send it, and wait until all of it is read."""
    run = json.loads(value[: value.index("\n")])["run"]
    page.evaluate(f"value => {VIEW}.read(value)", value)
    page.wait_for_selector(f'{ROOT}[data-run="{run}"]', state="attached")
    page.wait_for_function(f"{VIEW}.reader.lines.length === 0 && !{VIEW}.frame")


def rows_of(script: samples.Script) -> list[RowStep]:
    """What each forward of the lane of MARS did."""
    trace = samples.run(script)
    return [row for row, _ in folds.row_steps(trace.events)]


def shown_text(page: playwright.Page, pane: str) -> str:
    """The tokens' own characters, without what CSS or ghosts add."""
    return page.eval_on_selector_all(
        f"{pane} .rv-t", "nodes => nodes.map(n => n.textContent).join('')"
    )


def wait_for_charts(page: playwright.Page) -> None:
    """Until both, brought into sight, show the run on show."""
    see(page.locator(".rv-charts"))
    drawn = ".rv-plot.js-plotly-plot"
    page.wait_for_function(f"document.querySelectorAll('{drawn}').length === 2 && {CHARTS_REST}")


def asks(page: playwright.Page, kinds: list[str]) -> None:
    """Let the page answer these kinds of asks, and note them in ``window.asked``."""
    page.evaluate(
        """kinds => {
          window.mars.answers = kinds;
          window.asked = [];
          document.addEventListener("mars-ask", ({ detail }) => window.asked.push(
            { ...detail, ...(detail.lane ? { lane: detail.lane.name } : {}) }));
        }""",
        kinds,
    )


class ByHand:
    """A live race on ``script`` that continues when the test allows it."""

    def __init__(self, page: playwright.Page, script: samples.Script) -> None:
        self.page = page
        self.lines = race_scenes.interleaved(samples.lanes(script))
        self.log = race_scenes.log_of([])

    def send(self, num: int) -> None:
        """So many lines more, of both lanes by turns."""
        for tag, line in self.lines[:num]:
            self.log.add(tag, line)
        del self.lines[:num]
        value: Any = self.log.latest()
        self.page.evaluate(f"value => {VIEW}.read(value)", value)
