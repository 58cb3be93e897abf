"""The Trade-off tab: its order, its lines, its ends; then in a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import needs_browser, opened, playwright
from live_page import lane_trace, lines_of, only_run, open_tab, over
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

from app.handlers import Handlers
from app.tradeoff.grid import NUM_ROUNDS, GridHandlers
from app.ui.results import read_points
from mars_runtime.engine.request import Request
from mars_runtime.runs import folds
from mars_runtime.runs.events import Event, Step
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import eventually

WRONG_FROM = 10
"""The token from which an unverified text differs from AR's, where B is above 2 and tau low."""


class GridBackend(ScriptedBackend):
    """Takes B tokens per forward at a low tau, one elsewhere; lossless always takes them all."""

    def __init__(self) -> None:
        super().__init__(TEXT)
        self.permits: threading.Semaphore | None = None  # each forward of MARS takes one
        self.begun: list[DecodeSettings] = []

    @property
    def named(self) -> list[str]:
        """The settings of every run, in the order in which they began."""
        return [
            s.method if s.method == "ar" else "lookup" if s.lookup else
            f"{'lossless' if s.lossless else f'{s.tau:g}'}/{s.block_size}"
            for s in self.begun
        ]  # fmt: skip

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        self.begun.append(settings())
        is_bold = settings().method == "mars" and settings().tau < 0.6
        is_wrong = is_bold and not settings().lossless and settings().num_proposals > 2
        for event in super().decode(request, settings):
            if self.permits and settings().method == "mars":
                self.permits.acquire(timeout=60)
            if settings().num_proposals > 1:  # masks make a forward longer
                time.sleep(self.forward_seconds)
            yield swapped(event) if is_wrong and isinstance(event, Step) else event


def swapped(step: Step) -> Step:
    """Another letter from WRONG_FROM on."""
    (row,) = step.rows
    accepted = tuple(
        ord("#") if row.start + place >= WRONG_FROM and token < 256 else token
        for place, token in enumerate(row.accepted)
    )
    return replace(step, rows=(replace(row, accepted=accepted),))


def make_page(folder: Path, **caps: object) -> tuple[Handlers, GridBackend]:
    """Handlers over the backend; close them with ``handlers.engines.close()``."""
    backend = GridBackend()
    return make_handlers(folder, backend, **caps), backend


def controls(**changes: object) -> dict[str, object]:
    """What the tab sends for a run, with changes: the lossless row and one of τ, two cells each."""
    return {
        "prompt": "Say ${HOME}<b>.",
        "rows": [0.5, "lossless"],
        "columns": [4, 2],
        "max_new_tokens": 32,
        "checkpoint": "scripted",
        **changes,
    }


CELLS = ["ar", "lookup", "r0c0", "r0c1", "r1c0", "r1c1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GridHandlers, GridBackend]]:
    handlers, backend = make_page(tmp_path_factory.mktemp("made"))
    yield handlers.grid, backend
    handlers.engines.close()


@pytest.fixture
def page(made: tuple[GridHandlers, GridBackend]) -> tuple[GridHandlers, GridBackend]:
    """The same page for all, at full speed, that was asked nothing yet."""
    made[1].forward_seconds = 0.0
    made[1].prompts.clear()
    made[1].begun.clear()
    return made


def of_tag(value: str, tag: str) -> list[dict]:
    return [data for actual, data in lines_of(value)[1] if actual == tag]


def test_every_cell_is_a_trace_and_is_timed_in_turn_with_ar(page) -> None:
    grid, backend = page
    *_, last = grid.run("visitor", controls(system="Be brief."))
    head, lines = lines_of(last)
    assert head["columns"] == [2, 4]
    assert [row["lossless"] for row in head["rows"]] == [True, False]
    assert list(dict.fromkeys(tag for tag, _ in lines if tag in CELLS)) == CELLS
    traces = {name: lane_trace(last, name) for name in CELLS}
    assert {trace.header.system for trace in traces.values()} == {"Be brief."}
    chosen = traces["r1c1"].header.settings
    assert (chosen.tau, chosen.block_size, chosen.lossless, chosen.lookup) == (0.5, 4, False, False)
    assert traces["r0c0"].header.settings.lossless
    assert folds.tpf(traces["r1c1"].events) == 4
    parted = [folds.first_divergence(traces[name].events, traces["ar"].events) for name in CELLS]
    assert parted == [None] * 5 + [WRONG_FROM]
    turns = [["ar", "lookup"], ["ar", "lossless/2", "lossless/4"], ["ar", "0.5/2", "0.5/4"]]
    back = [turn[::-1] for turn in turns[::-1]]
    assert backend.named == [name for turn in (*turns, *back, *turns) for name in turn]
    rounds = {line["cell"]: line for line in of_tag(last, "rounds")}
    assert [rounds[name]["rounds"] for name in CELLS] == [3 * NUM_ROUNDS, *[NUM_ROUNDS] * 5]
    assert of_tag(last, "status")[-1]["kind"] == "finished"


def test_stop_ends_the_cell_and_begins_no_other(page) -> None:
    grid, backend = page
    backend.forward_seconds = 0.02
    values = grid.run("visitor", controls())
    for value in values:
        if of_tag(value, "lookup"):
            break
    grid.stop("somebody else")
    grid.stop("visitor")
    *_, last = values
    assert of_tag(last, "lookup")[-1]["reason"] == "cancelled"
    assert not of_tag(last, "r0c0")
    assert of_tag(last, "status")[-1]["kind"] == "stopped"
    assert len(grid.runs) == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rows": []}, "rows"),
        ({"rows": [1.5, ["lossless"]]}, "rows"),
        ({"columns": "2"}, "columns"),
        ({"columns": ["auto"]}, "columns"),
        ({"prompt": " "}, ""),  # not a control of this tab: the run reports it
    ],
)
def test_an_invalid_control_is_refused_and_nothing_runs(page, changes, field) -> None:
    grid, backend = page
    refusal = grid.check(controls(**changes))
    assert (refusal.field if refusal else "") == field
    *_, last = grid.run("visitor", controls(**changes))
    (status,) = of_tag(last, "status")
    assert status["kind"] == "error"
    assert backend.prompts == []


def test_the_results_of_many_prompts_are_shares_with_intervals() -> None:
    points = read_points()
    assert {point.checkpoint for point in points} >= {"mars-smollm2", "mars-tiny"}
    for point in points:
        assert 0 <= point.agreement.low <= point.agreement.value <= point.agreement.high <= 1
        assert point.tpf.value >= 1
        assert point.num_prompts >= 10


VIEW = "#grid .mars-grid"
HEAT = "#grid [data-chart=heat] .rv-plot"
DRAWN = """(key) => document.querySelector(`#grid [data-chart=${key}] .rv-plot`).data
  .map(({ x, y, z }) => z ?? x.map((value, i) => [value, y[i]]))"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, GridBackend, Handlers]]:
    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    backend.forward_seconds = 0.001
    with page_served(handlers) as url:
        yield url, backend, handlers


@needs_browser
def test_a_visitor_runs_the_prompt_of_live_opens_a_cell_there_and_stops(served) -> None:
    url, backend, handlers = served
    with opened(f"{url}?prompt=Say+${{HOME}}<b>.&max_new_tokens=32#trade-off") as page:
        page.wait_for_selector(f"{VIEW}[data-phase=finished][data-recorded-run=true]")
        playwright.expect(page.locator(f"{VIEW} .gv-next")).to_contain_text(": Say ${HOME}<b>.")
        for name in ("τ 0.9", "τ 0.8", "τ 0.7", "B 8"):
            page.get_by_label(name, exact=True).uncheck()
        over(page, lambda: page.click("#grid-run"), VIEW, "data-phase")
        playwright.expect(page.locator(f"{VIEW} .rv-prompt")).to_have_text("Say ${HOME}<b>.")
        page.wait_for_function(f"document.querySelector('{HEAT}').data?.[0].z.length === 2")
        (table,) = page.evaluate(DRAWN, "heat")
        assert table[1] == [2, 4]
        page.wait_for_function(
            "document.querySelector('#grid [data-chart=scatter] .rv-plot').data.length === 5"
        )
        _, ar, lookup, bold, lossless = page.evaluate(DRAWN, "scatter")
        assert (ar, lossless[1][1], lookup[0][1]) == ([[1, 100]], 100, 100)
        assert bold == [[2, 100], [4, pytest.approx(100 * WRONG_FROM / 32)]]
        page.click(f"{VIEW} [data-chart=scatter] button")
        page.wait_for_selector(f"{VIEW}[data-across=speed]")

        page.focus(HEAT)  # what a pointer does, with the keyboard
        page.keyboard.press("End")
        assert f"token {WRONG_FROM + 1}" in page.inner_text(f"{VIEW} .gv-readout")
        page.keyboard.press("Home")
        box = page.locator(f"{HEAT} .nsewdrag").bounding_box()
        page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + 0.75 * box["height"])
        page.wait_for_selector("#race .mars-race[data-state=finished][data-lanes='2']")
        differs = page.inner_text("#race .rv-pane[data-lane=mars] .rv-differs")
        assert str(WRONG_FROM + 1) in differs
        assert page.locator("#race .rv-text b").count() == 0

        open_tab(page, "trade-off")
        backend.permits = threading.Semaphore(4)
        page.click("#grid-run")
        page.wait_for_selector(f"{VIEW}[data-phase=running]")
        stopped = only_run(handlers.grid)
        page.keyboard.press("Escape")
        assert eventually(lambda: stopped.is_cancelled)
        backend.permits.release(100)
        page.wait_for_selector(f"{VIEW}[data-phase=stopped]")
        backend.permits = None
