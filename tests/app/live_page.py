"""What tests of the Live tab do as a visitor would: move controls, run prompts, wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from browser import playwright

from app.handlers import Handlers
from app.live.lanes import LiveRun
from app.ui.stream import R, TabHandlers
from mars_runtime.runs.trace import read_trace

ROOT = "#race .mars-race"
MOVED = ".rv-pane[data-lane=mars] .rv-move"
"""The marks in the margin where a setting was changed during the run."""
LOADED = "document.querySelector('#footer')?.innerText.includes(' · ') === true"
"""The page is rendered, and its checkpoint is loaded: the footer describes it."""

TAB_OF = {"grid": "trade-off"}
"""View, by its element id -> the tab's name in addresses."""


def open_tab(page: playwright.Page | playwright.Frame, view: str) -> None:
    """Open the tab of a view as a visitor would; How it works is a fold of Live."""
    if view == "how-it-works":
        open_tab(page, "live")
        if not page.locator("#explain").is_visible():
            page.click("#how-it-works > button")
        return
    button = page.locator(f"#{TAB_OF.get(view, view)}-tab-button")
    if button.get_attribute("aria-selected") != "true":
        button.click()


def only_run(tab: TabHandlers[R]) -> R:
    """The only run of a tab that there is."""
    (run,) = tab.runs._runs.values()
    return run


def running(handlers: Handlers) -> LiveRun:
    """The only race there is."""
    return only_run(handlers.live)


def choose(page: playwright.Page, place: str, title: str) -> None:
    page.click(f"#{place} input")
    page.click(f"[role=option]:text-is('{title}')")


def set_knob(page: playwright.Page, knob: str, value: float) -> None:
    """Move a slider as a drag would or a hidden field as the page does; press a choice."""
    page.evaluate(
        """([knob, value]) => {
          const choice = document.querySelector(`#${knob} input[type=radio][value="${value}"]`);
          if (choice) return choice.click();
          const slider = document.querySelector(`#${knob} input[type=range]`)
            ?? document.querySelector(`#${knob} input`);
          slider.value = value;
          slider.dispatchEvent(new Event('input', { bubbles: true }));
        }""",
        [knob, value],
    )


def wait_steps(page: playwright.Page, count: int, lane: str = "mars") -> None:
    page.wait_for_function(
        "([lane, n]) => +document.querySelector(`.rv-pane[data-lane=${lane}]`)?.dataset.steps >= n",
        arg=[lane, count],
    )


def wait_state(page: playwright.Page, state: str) -> None:
    page.wait_for_selector(f"#race .mars-race[data-state={state}]")


def begin(page: playwright.Page, press: Callable[[], object]) -> None:
    """Begin another run and wait for its first steps."""
    before = page.locator("#race .mars-race").first.get_attribute("data-run")
    press()
    page.wait_for_selector(f"#race .mars-race:not([data-run='{before}'])")
    wait_steps(page, 3)


def start(page: playwright.Page, prompt: str = "Say it.") -> None:
    page.fill("#prompt textarea", prompt)
    begin(page, lambda: page.click("#run"))


def wait_loaded(page: playwright.Page) -> None:
    """Wait until the page is rendered and its checkpoint is loaded."""
    wait_state(page, "empty")
    page.wait_for_function(LOADED)


def over(
    page: playwright.Page, press: Callable[[], object], view: str = ROOT, said: str = "data-state"
) -> None:
    """Start another run of a view and wait for its end, which the selector ``said`` shows."""
    before = page.get_attribute(view, "data-run")
    press()
    page.wait_for_selector(f"{view}[{said}=finished]:not([data-run='{before}'])")


def run(page: playwright.Page, prompt: str = "") -> None:
    """Run a prompt, or the one in the box, to its end."""
    if prompt:
        page.fill("#prompt textarea", prompt)
    over(page, lambda: page.click("#run"))


def lines_of(value: str) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The head of a value and its tagged lines."""
    head, *rest = value.splitlines()
    return json.loads(head), [
        (tag, json.loads(data)) for tag, data in (r.split("\t", 1) for r in rest)
    ]


def lane_trace(value: str, lane: str):
    return read_trace(
        [r.split("\t", 1)[1] for r in value.splitlines() if r.startswith(lane + "\t")]
    )


def begun(stream: Iterator[str]) -> Iterator[str]:
    """The stream, once some steps have come."""
    while '"step"' not in next(stream):
        pass
    return stream


def last(stream: Iterator[str]) -> str:
    return list(stream)[-1]
