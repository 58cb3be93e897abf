"""What tests of the race view share: where things are on the page, and how to play a scene."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ROOT = "#race .mars-race"
MARS = '.rv-pane[data-lane="mars"]'
AR = '.rv-pane[data-lane="ar"]'

needs_browser = pytest.mark.skipif(
    playwright is None or not CHROMIUM.exists(), reason="chromium or playwright is not installed"
)
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
