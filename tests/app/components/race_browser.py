"""What tests of the race view share: where things are on the page, and how to play a scene."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sample_traces as samples
from browser import playwright, see
from race_page import head, interleaved

from app.ui.stream import RunLog

ROOT = "#race .mars-race"
VIEW = f"document.querySelector('{ROOT}').lineView"
CHARTS_REST = (
    f"(!{VIEW}.frame && {VIEW}.charts.charts.every(({{ plot }}) => !plot.isDue && !plot.timer))"
)
MARS = '.rv-pane[data-lane="mars"]'
AR = '.rv-pane[data-lane="ar"]'

Show = Callable[..., Any]


def play(page: playwright.Page, scene: str, state: str = "finished") -> None:
    """Press a scene's button and wait until its run is in that state."""
    before = page.get_attribute(ROOT, "data-run")
    page.click(f"#play-{scene}")
    page.wait_for_selector(f'{ROOT}[data-state={state}]:not([data-run="{before}"])')


def shown_text(page: playwright.Page, pane: str) -> str:
    """The tokens' own characters, without what CSS or ghosts add."""
    return page.eval_on_selector_all(
        f"{pane} .rv-t", "nodes => nodes.map(n => n.textContent).join('')"
    )


class ByHand:
    """A live race on ``script`` that continues when the test allows it; nothing else may stream."""

    def __init__(self, page: playwright.Page, script: samples.Script, run: str = "by-hand") -> None:
        self.page = page
        self.lines = interleaved(samples.lanes(script))
        self.value = RunLog(head(run, {"mars": "MARS", "ar": "plain AR"}))

    def send(self, num: int) -> None:
        """So many lines more, of both lanes by turns."""
        self._add(num)
        self.page.evaluate(f"value => {VIEW}.read(value)", self.value.latest())

    def skip(self, num_values: int) -> None:
        """Values that never reach the page, of ten lines each."""
        for _ in range(num_values):
            self._add(10)
            self.value.latest()

    def _add(self, num: int) -> None:
        for tag, line in self.lines[:num]:
            self.value.add(tag, line)
        del self.lines[:num]


def wait_for_charts(page: playwright.Page) -> None:
    """Until both, brought into sight, show the run on show."""
    see(page.locator(".rv-charts"))
    drawn = ".rv-plot.js-plotly-plot"
    page.wait_for_function(f"document.querySelectorAll('{drawn}').length === 2 && {CHARTS_REST}")
