"""What tests of panels share: open one, put any run into the view, hear what it asks of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from browser import playwright
from race_browser import ROOT

VIEW = f"document.querySelector('{ROOT}').lineView"


def put(page: playwright.Page, value: str) -> None:
    """Show a value as the server would send it, and wait until all of it is drawn."""
    run = json.loads(value[: value.index("\n")])["run"]
    page.evaluate(f"value => {VIEW}.read(value)", value)
    page.wait_for_selector(f'{ROOT}[data-run="{run}"]')
    page.wait_for_function(f"{VIEW}.feed.lines.length === 0 && !{VIEW}.frame")


def open_panel(page: playwright.Page, name: str) -> playwright.Locator:
    """Open the panel of this id and give its element."""
    page.set_default_timeout(90_000)  # a busy machine is slow, not wrong
    page.click(f'{ROOT} [role=tab][id$="-{name}-tab"]')
    panel = page.locator(f'{ROOT} [data-panel="{name}"]')
    panel.wait_for()
    return panel


def choose(page: playwright.Page, lane: str, step: int) -> None:
    """Choose a forward of a lane, as a click on one of its tokens does."""
    page.evaluate(
        f"([name, step]) => {VIEW}.choose({VIEW}.run.lanes.find((l) => l.name === name), step)",
        [lane, step],
    )
    settle(page)


def settle(page: playwright.Page) -> None:
    """Wait for the next two frames."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def answer(page: playwright.Page, kinds: Sequence[str]) -> None:
    """Let the page answer these kinds of asks; what is asked is kept."""
    page.evaluate(
        """kinds => {
          window.marsAsk = kinds;
          window.asked = [];
          document.addEventListener("mars-ask", ({ detail }) => window.asked.push(
            { ...detail, ...(detail.lane ? { lane: detail.lane.name } : {}) }));
        }""",
        list(kinds),
    )


def asked(page: playwright.Page) -> list[dict[str, Any]]:
    """What was asked since."""
    return page.evaluate("window.asked")
