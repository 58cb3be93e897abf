"""The Grid tab in a real browser, over the real engine and a scripted backend.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from browser import Arrive, needs_browser, playwright
from grid_page import WRONG_FROM, GridBackend, controls, make_page

from app.handlers import Handlers
from mars_runtime import folds
from mars_runtime.trace_reader import read_trace

PROMPT = "Say ${HOME}<b>."
AR, SAME, BOLD, LAST = ("ar", "r0c0", "r0c1", "r2c1")

pytestmark = needs_browser


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, GridBackend, Handlers]]:
    from app.serving.serve import serve

    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    page = serve(handlers, is_blocking=False)
    yield page.local_url, backend, handlers
    page.close()
    handlers.engines.close()


@pytest.fixture
def backend(served: tuple[str, GridBackend, Handlers]) -> GridBackend:
    served[1].forward_seconds, served[1].permits = 0.001, None
    return served[1]


@pytest.fixture
def visit(
    arrive: Arrive, served: tuple[str, GridBackend, Handlers], backend: GridBackend
) -> Callable[..., playwright.Page]:
    """Open the tab as a new visitor and ask for three rows of two cells."""

    def open_tab(width: int = 1440, height: int = 1000, query: str = "") -> playwright.Page:
        page = arrive(served[0] + query, width, height)
        page.get_by_role("tab", name="Grid").click()
        wait_phase(page, "empty")
        page.fill("#grid-prompt textarea", PROMPT)
        page.fill("#grid-max_new_tokens input[type=number]", "32")
        for unwanted in ("0.7", "0.8"):
            page.get_by_label(unwanted, exact=True).uncheck()
        page.locator("#grid-block_sizes").get_by_label("8", exact=True).uncheck()
        return page

    return open_tab


def wait_phase(page: playwright.Page, phase: str) -> None:
    page.wait_for_selector(f"#grid .mars-grid[data-phase={phase}]")


def cell(name: str, inner: str = "") -> str:
    return f"#grid .gv-cell[data-cell={name}] {inner}".strip()


def run(page: playwright.Page) -> None:
    page.click("#grid-run")
    wait_phase(page, "finished")


def test_cells_figures_marks_and_an_opened_cell(visit) -> None:
    page = visit()
    run(page)
    assert page.locator("#grid [role=row]").count() == 5
    assert page.locator("#grid [role=gridcell]").count() == 7
    assert page.locator("#grid [role=rowheader]").all_inner_texts() == [
        "plain AR", "τ 0.5", "τ 0.9", "lossless",
    ]  # fmt: skip
    assert page.locator("#grid [role=columnheader]").all_inner_texts() == ["τ × B", "B 2", "B 4"]
    assert page.inner_text(cell(AR, ".gv-tpf")) == "1.00"
    assert page.inner_text(cell(BOLD, ".gv-tpf")) == "4.00"
    assert page.inner_text(cell(BOLD, ".gv-differs")) == f"differs from token {WRONG_FROM + 1}"
    assert page.inner_text(cell(SAME, ".gv-differs")) == "same text"
    assert page.inner_text(cell(LAST, ".gv-differs")) == "same text"
    assert re.fullmatch(r"[\d.]+×( slower)?|noisy", page.inner_text(cell(LAST, ".gv-ratio")))
    assert page.inner_text(cell(LAST, ".gv-speed")).endswith(" tok/s")
    marks = page.locator("#grid .gv-mark:not(:empty)").all_inner_texts()
    assert sorted(marks) == sorted(["★", "▲", "▲"])
    assert page.inner_text("#grid .gv-best").startswith("Fastest: ")
    assert "AR's own text" in page.inner_text("#grid .gv-best")
    assert page.inner_text(cell(BOLD, ".gv-agreement")) == "31"  # the first ten of 32 tokens
    assert page.inner_text(cell(SAME, ".gv-agreement")) == "100"
    assert page.locator("#grid-race").is_hidden()

    page.click(cell(BOLD))
    page.wait_for_selector("#grid-race .mars-race[data-state=finished][data-lanes='2']")
    race = page.locator("#grid-race")
    assert page.inner_text("#grid .gv-opened") == "Below: τ 0.5, B 4 against plain AR."
    assert "τ 0.5 · B 4" in race.locator(".rv-pane[data-lane=mars] .rv-head").inner_text()
    differs = race.locator(".rv-pane[data-lane=mars] .rv-differs").inner_text()
    assert differs == f"differs from token {WRONG_FROM + 1}"
    text = race.locator(".rv-pane[data-lane=ar] .rv-text").evaluate("e => e.textContent")
    assert text.startswith("Say ${HOME}<b>bold</b>")
    assert race.locator(".rv-pane b b, .rv-text b").count() == 0
    race.locator(".rv-pane[data-lane=mars] .rv-t").nth(3).hover()
    page.wait_for_selector("#grid-race .rv-card:not([hidden])")
    assert page.get_attribute(cell(BOLD), "aria-selected") == "true"

    page.click(cell(AR))
    page.wait_for_selector("#grid-race .mars-race[data-state=finished][data-lanes='1']")
    assert page.inner_text("#grid .gv-opened") == "Below: plain AR."


def test_the_cells_are_coloured_by_what_is_chosen_and_say_it(visit) -> None:
    page = visit()
    run(page)
    levels = "(nodes) => nodes.map((node) => node.dataset.level).join('')"
    cells = "#grid .gv-cell"
    assert page.eval_on_selector_all(cells, levels) == "0" + "25" + "11" + "25"  # 2 and 4 tokens
    assert page.inner_text("#grid .gv-key >> nth=0") == "1.00"
    assert page.inner_text("#grid .gv-key >> nth=4") == "3.40"  # four fifths of the way to 4
    size = "node => parseFloat(getComputedStyle(node).fontSize)"
    assert page.eval_on_selector(cell(BOLD, ".gv-tpf"), size) == 22
    page.check("#grid .gv-measures input[value=agreement]")
    page.wait_for_selector(f"{cell(BOLD)}[data-level='1']")  # the least there is
    assert page.eval_on_selector_all(cells, levels) == "0" + "51" + "55" + "55"
    assert page.eval_on_selector(cell(BOLD, ".gv-agreement"), size) == 22
    assert "same order" in page.inner_text("#grid .gv-legend")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#grid .mars-grid[data-measure=speed]")
    assert page.locator("#grid .gv-key >> nth=0").inner_text().endswith("×")


def test_the_frontier_opens_the_run_of_a_point_which_wears_its_colour(visit) -> None:
    page = visit()
    run(page)
    points = page.locator("#grid .gv-point:visible")
    assert points.count() == 7
    best = "nodes => nodes.map((node) => node.dataset.cell)"
    assert page.eval_on_selector_all("#grid .gv-point[data-best=true]", best) == [LAST]
    assert page.locator("#grid .gv-plot .gv-label").all_text_contents() == ["lossless · B 4"]
    assert page.locator("#grid .gv-point[tabindex='0']").count() == 1
    page.focus("#grid .gv-point[tabindex='0']")
    page.keyboard.press("End")
    assert page.inner_text("#grid .gv-readout").startswith("lossless, B 4, 4.00 tokens per forward")
    assert "gv-pointed" in page.get_attribute(cell(LAST), "class")
    page.keyboard.press("Enter")
    page.wait_for_selector("#grid-race .mars-race[data-state=finished]")
    assert page.inner_text("#grid .gv-opened") == "Below: lossless, B 4 against plain AR."
    colour = "node => getComputedStyle(node).getPropertyValue('--rv-run').trim()"
    worn = {
        page.eval_on_selector(place, colour)
        for place in (cell(LAST), f"#grid .gv-point[data-cell={LAST}]", "#grid-race .rv-pane")
    }
    assert len(worn) == 1
    assert worn.pop().startswith("#")
    page.click(f"#grid .gv-point[data-cell={BOLD}]")
    page.wait_for_selector("#grid .gv-opened:text('Below: τ 0.5, B 4 against plain AR.')")
    assert page.get_attribute(cell(LAST), "data-colour") == ""  # no other view shows it now


def test_the_keyboard_runs_moves_opens_and_stops(visit, backend) -> None:
    page = visit()
    page.focus("#grid-prompt textarea")
    page.keyboard.press("Control+Enter")
    wait_phase(page, "finished")
    assert page.locator("#grid .gv-cell[tabindex='0']").count() == 1
    page.focus(cell(AR))
    for key in ("ArrowUp", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#grid-race .mars-race[data-state=finished]")
    focused = "document.activeElement.dataset.cell"
    assert page.evaluate(focused) == "r1c1"
    label = page.get_attribute(cell("r1c1"), "aria-label")
    assert label.startswith("τ 0.9, B 4, 1.00 tokens per forward, 100 % agreement with AR, ")
    assert label.endswith("shown below")
    assert page.inner_text("#grid .gv-opened").startswith("Below: τ 0.9, B 4")
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
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    backend.permits.release(100)
    wait_phase(page, "stopped")
    assert page.inner_text("#grid .gv-status") == "Stopped: 0 of 6 cells ran."
    page.wait_for_selector("#grid-race .mars-race[data-state=stopped]")


def test_a_closed_tab_ends_the_run(visit, backend) -> None:
    page = visit()
    backend.forward_seconds = 0.05
    page.click("#grid-run")
    page.wait_for_selector("#grid .gv-cell[data-state=running]")
    page.close()
    before, until = -1, time.monotonic() + 10
    while backend.num_forwards != before and time.monotonic() < until:
        before = backend.num_forwards
        time.sleep(0.3)  # longer than a forward, so that a run that goes on shows
    assert backend.num_forwards == before


def test_refusals_examples_and_the_prompt_of_live(visit) -> None:
    page = visit()
    page.get_by_label("0.5", exact=True).uncheck()
    page.get_by_label("0.9", exact=True).uncheck()
    page.get_by_label("a lossless row").uncheck()
    page.click("#grid-run")
    page.wait_for_selector("#grid-taus :text('Choose at least one τ, or the lossless row.')")
    assert page.get_attribute("#grid .mars-grid", "data-phase") == "empty"
    assert page.input_value("#grid-prompt textarea") == PROMPT
    prompt = page.locator("#grid-prompt textarea")
    page.get_by_role("button", name="Another example").click()
    page.wait_for_function(
        "p => document.querySelector('#grid-prompt textarea').value !== p", arg=PROMPT
    )
    page.get_by_role("tab", name="Live").click()
    page.fill("#prompt textarea", "From the other tab.")
    page.get_by_role("tab", name="Grid").click()
    page.get_by_role("button", name="Prompt of Live").click()
    playwright.expect(prompt).to_have_value("From the other tab.")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_has_no_sideways_scroll(visit, theme: str) -> None:
    page = visit(390, 844, f"?__theme={theme}")
    run(page)
    page.click(cell(BOLD))
    page.wait_for_selector("#grid-race .mars-race[data-state=finished]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(cell(BOLD)).bounding_box()["x"] >= 0


def test_recorded_cells_are_drawn_and_parted_as_the_folds_say(visit, served) -> None:
    """A value that was kept, read again without a server, against the folds in Python."""
    *_, value = served[2].grid.run("recorder", controls())
    page = visit()
    page.evaluate("v => document.querySelector('#grid .mars-grid').lineView.read(v)", value)
    wait_phase(page, "finished")
    lines: dict[str, list[str]] = {}
    for line in value.splitlines()[1:]:
        tag, data = line.split("\t", 1)
        lines.setdefault(tag, []).append(data)
    ar = read_trace(lines["ar"])
    for name in (SAME, BOLD, "r1c0", "r1c1", "r2c0", LAST):
        events = read_trace(lines[name]).events
        assert page.inner_text(cell(name, ".gv-tpf")) == f"{folds.tpf(events):.2f}"
        place = folds.first_divergence(events, ar.events)
        said = "same text" if place is None else f"differs from token {place + 1}"
        assert page.inner_text(cell(name, ".gv-differs")) == said
    page.click(cell(LAST))
    page.wait_for_selector("#grid-race .mars-race[data-state=finished][data-lanes='2']")
    broken = json.dumps({"run": "x", "prompt": "", "rows": [], "columns": []}) + "\nr9c9\t{}\n"
    page.evaluate("v => document.querySelector('#grid .mars-grid').lineView.read(v)", broken)
    wait_phase(page, "error")
    assert "cannot be drawn" in page.inner_text("#grid .gv-status")
