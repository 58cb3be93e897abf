"""What tests of panels share: open one, put any run into the view, hear what it asks of the page.

``still_page`` is the race view by itself, without gradio: for runs that are put in at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import race_scenes
import sample_traces as samples
from browser import playwright, visiting
from race_browser import ROOT, VIEW

from app.ui import assets, recordings
from app.ui.views import RaceView
from mars_runtime.runs import folds
from mars_runtime.runs.events import RowStep

HOST = """<!doctype html><title>panels</title><script>{}</script>{}<body>
<div id="race">{}</div><script>
window.mars.mountRaceView(document.querySelector("#race"), {{ value: "" }}, () => {{}});</script>"""


@contextmanager
def still_page(plotly: Path | None = None) -> Iterator[playwright.Page]:
    """A page that shows what is ``put`` into it, a recording to begin with, and nothing else; fails
    on script errors.

    plotly: the script that draws its charts; without it there are none.
    """
    with visiting() as take:
        page = take("about:blank")
        page.emulate_media(reduced_motion="no-preference")
        page.set_viewport_size({"width": 1100, "height": 1000})
        script = plotly.read_text("utf-8") if plotly else ""
        page.set_content(HOST.format(script, assets.head(), RaceView.template("")))
        put(page, recording("sort-words").value)
        yield page


def recording(name: str) -> recordings.Recording:
    """A recorded race by its name."""
    return next(recording for recording in recordings.load() if recording.name == name)


def put(page: playwright.Page, value: str) -> None:
    """Show a value as the server would send it, and wait until all of it is drawn."""
    run = json.loads(value[: value.index("\n")])["run"]
    page.evaluate(f"value => {VIEW}.read(value)", value)
    page.wait_for_selector(f'{ROOT}[data-run="{run}"]', state="attached")
    page.wait_for_function(f"{VIEW}.reader.lines.length === 0 && !{VIEW}.frame")


def forwards(made: recordings.Recording) -> list[RowStep]:
    """What the MARS lane of a recording did, forward by forward."""
    return [step for step, _ in folds.row_steps(made.traces()["mars"].events)]


def refused(made: recordings.Recording, is_right: bool) -> int:
    """Return a forward with a first rejected proposal that the run wrote afterwards, or did not
    write.
    """
    written = folds.accepted_tokens(made.traces()["mars"].events)
    for index, step in enumerate(forwards(made)):
        count = len(step.accepted)
        then = written[step.start + count : step.start + count + 1]
        is_refusal = step.stop == "threshold" and bool(then)
        if is_refusal and (step.proposals[count].token == then[0]) == is_right:
            return index
    raise AssertionError(f"{made.name} refuses no such proposal: take another recording.")


def put_scene(page: playwright.Page, name: str) -> None:
    """Show a scene that is sent at once, as if nothing had been there before."""
    page.evaluate(f"{VIEW}.read('')")
    *_, whole = race_scenes.SCENES[name]()
    put(page, whole)


def stream(page: playwright.Page, script: samples.Script) -> Iterator[None]:
    """Show a race step by step; the test continues between two values."""
    page.evaluate(f"{VIEW}.read('')")
    for value in race_scenes.streaming(script, per_update=24, rest=0)():
        put(page, value)
        yield


def open_panel(page: playwright.Page, name: str) -> playwright.Locator:
    """Open the panel of this id and give its element."""
    page.click(f'{ROOT} [role=tab][id$="-{name}-tab"]')
    panel = page.locator(f'{ROOT} [data-panel="{name}"]')
    panel.wait_for()
    return panel


def open_at(page: playwright.Page, name: str) -> str:
    """Open the panel of this id and say where it is."""
    open_panel(page, name)
    return f"{ROOT} [data-panel={name}]"


def rows_of(script: samples.Script, lane: str = "mars") -> list[RowStep]:
    """What each forward of a scene's lane did."""
    trace = samples.read(samples.lanes(script)[lane])
    return [row for row, _ in folds.row_steps(trace.events)]


def go_to(page: playwright.Page, step: int, lane: int = 0) -> None:
    """Show the run as it was right after a forward of a lane."""
    page.evaluate(f"{VIEW}.goTo({VIEW}.run.lanes[{lane}], {step})")
    settle(page)


def all_texts(page: playwright.Page, selector: str) -> list[str]:
    """The text of every element there."""
    return page.eval_on_selector_all(selector, "nodes => nodes.map((n) => n.textContent)")


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
          window.mars.answers = kinds;
          window.asked = [];
          document.addEventListener("mars-ask", ({ detail }) => window.asked.push(
            { ...detail, ...(detail.lane ? { lane: detail.lane.name } : {}) }));
        }""",
        list(kinds),
    )


def asked(page: playwright.Page) -> list[dict[str, Any]]:
    """What was asked since."""
    return page.evaluate("window.asked")
