"""The Grid tab: its order, its lines, its ends, its visitors; then in a real browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from browser import needs_browser, opened, playwright
from grid_page import WRONG_FROM, GridBackend, controls, make_page
from live_page import (
    SETTINGS,
    lane_trace,
    lines_of,
    only_run,
    open_tab,
    over,
)
from scripted_page import page_served

from app.handlers import Handlers
from app.tradeoff.grid import FULL, GridHandlers
from app.tradeoff.grid_order import TAUS
from mars_runtime import folds
from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.trace import Trace
from tests.engine.scripted import eventually

CELLS = ["ar", "r0c0", "r0c1", "r1c0", "r1c1", "r2c0", "r2c1"]


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


def traces(value: str) -> dict[str, Trace]:
    """Cell -> its trace, in the order in which they began."""
    names = dict.fromkeys(tag for tag, _ in lines_of(value)[1] if tag in CELLS)
    return {name: lane_trace(value, name) for name in names}


def test_ar_runs_first_then_row_by_row_and_each_cell_is_a_trace(page) -> None:
    grid, _ = page
    *_, last = grid.run("visitor", controls())
    head, lines = lines_of(last)
    assert head["columns"] == [2, 4]
    assert head["rows"] == [
        {"tau": 0.5, "lossless": False},
        {"tau": 0.9, "lossless": False},
        {"tau": 0.0, "lossless": True},
    ]
    tags = [tag for tag, _ in lines if tag in CELLS]
    assert tags == sorted(tags, key=CELLS.index), "one after the other"
    actual = traces(last)
    assert list(actual) == CELLS
    settings = {name: trace.header.settings for name, trace in actual.items()}
    assert settings["ar"].method == "ar"
    assert (settings["r0c1"].tau, settings["r0c1"].block_size) == (0.5, 4)
    assert settings["r2c0"].lossless
    assert folds.tpf(actual["ar"].events) == 1
    assert folds.tpf(actual["r0c1"].events) == 4
    parted = folds.first_divergence(actual["r0c1"].events, actual["ar"].events)
    assert parted == WRONG_FROM
    assert folds.first_divergence(actual["r0c0"].events, actual["ar"].events) is None
    said = of_tag(last, "status")
    assert said[0]["text"].startswith("Running plain AR")
    assert "Cell 2 of 6: τ 0.5, B 4…" in [item["text"] for item in said]
    assert "Round 3 of 3: lossless, B 4…" in [entry["text"] for entry in said]
    finished = "Finished: 6 of 6 cells done, timed in 3 rounds."
    assert said[-1] == {"text": finished, "kind": "finished"}


def test_ar_is_timed_with_every_row_of_every_round(page) -> None:
    """The order is reversed in every second round; a cell has the median and spread of them."""
    grid, backend = page
    *_, last = grid.run("visitor", controls(lossless=False))
    turns = [["ar", "0.5/2", "0.5/4"], ["ar", "0.9/2", "0.9/4"]]
    back = [turn[::-1] for turn in turns[::-1]]
    begun = ["ar" if s.method == "ar" else f"{s.tau:g}/{s.block_size}" for s in backend.begun]
    assert begun == [name for turn in (*turns, *back, *turns) for name in turn]
    rounds = {line["cell"]: line for line in of_tag(last, "rounds")}
    assert set(rounds) == {"ar", "r0c0", "r0c1", "r1c0", "r1c1"}
    assert rounds["ar"]["rounds"] == 2 * 3
    for name in ("r0c0", "r0c1", "r1c0", "r1c1"):
        actual = rounds[name]
        assert actual["rounds"] == 3
        assert actual["rate"][1] <= actual["rate"][0] <= actual["rate"][2]
        if actual["kind"] != "busy":
            assert actual["low"] <= actual["ratio"] <= actual["high"] <= actual["limit"]


def test_stop_ends_the_cell_and_begins_no_other(page) -> None:
    grid, backend = page
    backend.forward_seconds = 0.02
    values = grid.run("visitor", controls())
    for value in values:
        if of_tag(value, "r0c0"):
            break
    grid.stop("somebody else")
    grid.stop("visitor")
    *_, last = values
    assert list(traces(last)) == ["ar", "r0c0"]
    assert of_tag(last, "r0c0")[-1]["reason"] == "cancelled"
    assert of_tag(last, "status")[-1] == {"text": "Stopped: 0 of 6 cells done.", "kind": "stopped"}
    assert len(grid.runs) == 0


def test_a_later_cell_waits_for_a_place(page, monkeypatch) -> None:
    grid, _ = page
    engine = grid.engines.get("scripted").engine
    submit, is_busy = engine.submit, iter([False, True, True])  # the reference comes first

    def crowded(request: Request, **how: object) -> object:
        if next(is_busy, False):
            raise EngineBusy("The server is busy.")
        return submit(request, **how)

    monkeypatch.setattr(engine, "submit", crowded)
    monkeypatch.setattr("app.tradeoff.grid.HEARTBEAT_SECONDS", 0.01)
    *_, last = grid.run("visitor", controls(taus=[], block_sizes=[2]))
    said = [item["text"] for item in of_tag(last, "status")]
    assert said[-1] == "Finished: 1 of 1 cells done, timed in 3 rounds."
    assert FULL in said


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"taus": [], "lossless": False}, "taus", "Choose at least one τ, or the lossless row."),
        ({"block_sizes": []}, "block_sizes", "Choose at least one B."),
        ({"block_sizes": [2, 16]}, "block_sizes", "for a B of at most 8, but B is 16"),
        ({"block_sizes": ["auto", 2]}, "block_sizes", "Choose values from the list."),
        ({"taus": [1.5]}, "taus", "The threshold τ must be a number from 0 to 1, got 1.5."),
        ({"taus": [0.5] * 10_000}, "taus", "Choose up to 20 values from the list."),
        (
            {"taus": list(TAUS), "block_sizes": [2, 4, 8]},
            "taus",
            "at most 20 cells (you chose 9 rows × 3",
        ),
        ({"rounds": 4}, "rounds", "Choose 3 or 5 rounds."),
        (
            {"max_new_tokens": 257},
            "max_new_tokens",
            "Choose at most 256 tokens per cell (you chose 257).",
        ),
    ],
)
def test_what_cannot_run_is_one_sentence(page, changes, field, sentence) -> None:
    grid, backend = page
    refusal = grid.check(controls(**changes))
    assert refusal is not None
    assert refusal.field == field
    assert sentence in str(refusal)
    *_, last = grid.run("visitor", controls(**changes))
    (status,) = of_tag(last, "status")
    assert status == {"text": str(refusal), "kind": "error"}
    assert backend.prompts == []


PROMPT = "Say ${HOME}<b>."
GRID = "#grid .mars-grid"
AR, SAME, BOLD, LAST = ("ar", "r0c0", "r0c1", "r2c1")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, GridBackend, Handlers]]:
    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    backend.forward_seconds = 0.001
    with page_served(handlers) as url:
        yield url, backend, handlers


@pytest.fixture(scope="module")
def tab(served: tuple[str, GridBackend, Handlers]) -> Iterator[playwright.Page]:
    """The tab as one visitor has it open, who asks for three rows of two cells; each test leaves it
    as the next one needs it."""
    with opened(served[0]) as page:
        open_tab(page, "grid")
        page.wait_for_selector(f"{GRID}[data-recorded-run=true]")
        page.fill("#grid-prompt textarea", PROMPT)
        page.fill("#grid-max_new_tokens input[type=number]", "32")
        for unwanted in ("0.7", "0.8"):
            page.get_by_label(unwanted, exact=True).uncheck()
        page.locator("#grid-block_sizes").get_by_label("8", exact=True).uncheck()
        yield page


@pytest.fixture(scope="module")
def ran(tab: playwright.Page) -> playwright.Page:
    """The tab after a run."""
    run(tab)
    return tab


def wait_phase(page: playwright.Page, phase: str) -> None:
    page.wait_for_selector(f"#grid .mars-grid[data-phase={phase}]")


def cell(name: str, inner: str = "") -> str:
    return f"#grid .gv-cell[data-cell={name}] {inner}".strip()


def run(page: playwright.Page) -> None:
    over(page, lambda: page.click("#grid-run"), GRID, "data-phase")


@needs_browser
def test_refusals_examples_and_the_prompt_of_live(tab: playwright.Page) -> None:
    page = tab
    page.get_by_label("0.5", exact=True).uncheck()
    page.get_by_label("0.9", exact=True).uncheck()
    page.get_by_label("Include lossless").uncheck()
    page.click("#grid-run")
    page.wait_for_selector("#grid-taus :text('Choose at least one τ, or the lossless row.')")
    assert page.get_attribute(GRID, "data-recorded-run") == "true"
    assert page.input_value("#grid-prompt textarea") == PROMPT
    prompt = page.locator("#grid-prompt textarea")
    page.get_by_role("button", name="Another example").click()
    page.wait_for_function(
        "p => document.querySelector('#grid-prompt textarea').value !== p", arg=PROMPT
    )
    open_tab(page, "live")
    page.fill("#prompt textarea", "From the other tab.")
    open_tab(page, "grid")
    page.get_by_role("button", name="Use the prompt from Live").click()
    playwright.expect(prompt).to_have_value("From the other tab.")
    prompt.fill(PROMPT)
    page.click("#grid-taus [aria-label=Clear]")  # the sentence is above the control that it names
    for wanted in ("0.5", "0.9"):
        page.get_by_label(wanted, exact=True).check()
    page.get_by_label("Include lossless").check()


@needs_browser
def test_cells_figures_marks_and_an_opened_cell(ran: playwright.Page) -> None:
    page = ran
    assert page.locator("#grid [role=row]").count() == 5
    assert page.locator("#grid [role=gridcell]").count() == 7
    rows = page.locator("#grid [role=rowheader]").all_inner_texts()
    assert rows == ["plain AR", "τ 0.5", "τ 0.9", "lossless"]
    assert page.locator("#grid [role=columnheader]").all_inner_texts() == ["τ × B", "B 2", "B 4"]
    assert page.inner_text(cell(AR, ".gv-tpf")) == "1.00"
    assert page.inner_text(cell(BOLD, ".gv-tpf")) == "4.00"
    assert page.inner_text(cell(BOLD, ".gv-differs")) == f"differs at token {WRONG_FROM + 1}"
    assert page.inner_text(cell(SAME, ".gv-differs")) == "same text"
    ratio = page.inner_text(cell(LAST, ".gv-ratio"))
    assert re.fullmatch(r"[\d.]+×", ratio)
    assert float(ratio[:-1]) <= float(page.inner_text(cell(LAST, ".gv-tpf")))
    assert "median of 3" in page.get_attribute(cell(LAST, ".gv-ratio"), "title")
    assert page.inner_text(cell(LAST, ".gv-speed")).endswith(" tok/s")
    marks = page.locator("#grid .gv-mark:not(:empty)").all_inner_texts()
    assert sorted(marks) == sorted(["★", "▲", "▲"])
    best = page.inner_text("#grid .gv-best")
    assert best.startswith("Fastest: ")
    assert "the same text as AR" in best
    assert page.inner_text(cell(BOLD, ".gv-agreement")) == "31"  # the first ten of 32 tokens
    assert page.inner_text(cell(SAME, ".gv-agreement")) == "100"
    assert page.locator("#grid-race").is_hidden()

    page.click(cell(BOLD))
    page.wait_for_selector("#grid-race .mars-race[data-state=finished][data-lanes='2']")
    race = page.locator("#grid-race")
    assert page.inner_text("#grid .gv-opened") == "Shown below: τ 0.5, B 4 and plain AR."
    assert "τ 0.5 · B 4" in race.locator(SETTINGS).get_attribute("title")
    differs = race.locator(".rv-pane[data-lane=mars] .rv-differs").inner_text()
    assert differs == f"differs at token {WRONG_FROM + 1}"
    text = race.locator(".rv-pane[data-lane=ar] .rv-text").evaluate("e => e.textContent")
    assert text.startswith("Say ${HOME}<b>bold</b>")
    assert race.locator(".rv-pane b b, .rv-text b").count() == 0
    assert page.get_attribute(cell(BOLD), "aria-selected") == "true"

    page.click(cell(AR))
    page.wait_for_selector("#grid-race .mars-race[data-state=finished][data-lanes='1']")
    assert page.inner_text("#grid .gv-opened") == "Shown below: plain AR."


@needs_browser
def test_the_keyboard_runs_moves_opens_and_stops(tab: playwright.Page, served) -> None:
    page, backend = tab, served[1]
    page.focus("#grid-prompt textarea")
    over(page, lambda: page.keyboard.press("Control+Enter"), GRID, "data-phase")
    assert page.locator("#grid .gv-cell[tabindex='0']").count() == 1
    page.focus(cell(AR))
    for key in ("ArrowUp", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#grid-race .mars-race[data-state=finished]")
    focused = "document.activeElement.dataset.cell"
    assert page.evaluate(focused) == "r1c1"
    label = page.get_attribute(cell("r1c1"), "aria-label")
    assert label.startswith("τ 0.9, B 4, 1.00 tokens per pass, 100 % agreement with AR, ")
    assert label.endswith("shown below")
    assert page.inner_text("#grid .gv-opened").startswith("Shown below: τ 0.9, B 4")
    for key, reached in (("Home", "r1c0"), ("PageDown", "r2c0"), ("End", LAST), ("PageUp", AR)):
        page.keyboard.press(key)
        assert page.evaluate(focused) == reached
    assert page.locator("#grid .gv-cell[tabindex='0']").count() == 1
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == BOLD  # the column was kept

    backend.permits = threading.Semaphore(4)  # the prompt is read, three forwards are made
    page.click("#grid-run")
    page.wait_for_selector("#grid .gv-cell[data-cell=r0c0][data-state=running]")
    assert page.inner_text("#grid .gv-status") == "Cell 1 of 6: τ 0.5, B 2…"
    assert page.locator("#grid-race").is_hidden()  # that run is gone
    page.dispatch_event(cell(LAST), "click")
    assert page.locator("#grid .gv-opened").is_hidden()  # nothing to open yet
    page.click(cell(SAME))
    page.wait_for_selector("#grid-race .mars-race[data-state=running][data-steps='3']")
    backend.permits.release()
    page.wait_for_selector("#grid-race .mars-race[data-steps='4']")
    stopped = only_run(served[2].grid)
    page.keyboard.press("Escape")
    assert eventually(lambda: stopped.is_cancelled)
    backend.permits.release(100)
    wait_phase(page, "stopped")
    assert page.inner_text("#grid .gv-status") == "Stopped: 0 of 6 cells done."
    page.wait_for_selector("#grid-race .mars-race[data-state=stopped]")
    backend.permits = None
