"""What tests of the race view share: where things are on the page, and how to play a scene."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browser import playwright

ROOT = "#race .mars-race"
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


def wait_for_charts(page: playwright.Page) -> None:
    page.wait_for_function("document.querySelectorAll('.rv-plot.js-plotly-plot').length === 3")
