"""The Grid tab without a browser: its order, its lines, its ends, its visitors."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from grid_page import WRONG_FROM, GridBackend, controls, make_page

from app.controls import Limits
from app.grid.order import BLOCK_SIZES, TAUS, USUAL_BLOCK_SIZES, USUAL_TAUS, read_grid_order
from app.grid.run import FULL, GridHandlers
from mars_runtime import folds
from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Trace
from mars_runtime.trace_reader import read_trace

CELLS = ["ar", "r0c0", "r0c1", "r1c0", "r1c1", "r2c0", "r2c1"]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[GridHandlers, GridBackend]]:
    handlers, backend = make_page(tmp_path)
    backend.forward_seconds = 0.0
    yield handlers.grid, backend
    handlers.engines.close()


def parsed(value: str) -> tuple[dict, list[tuple[str, dict]]]:
    first, *lines = value.splitlines()
    pairs = [line.split("\t", 1) for line in lines]
    return json.loads(first), [(tag, json.loads(data)) for tag, data in pairs]


def of_tag(value: str, tag: str) -> list[dict]:
    return [data for found, data in parsed(value)[1] if found == tag]


def traces(value: str) -> dict[str, Trace]:
    """Cell -> its trace, in the order in which they began."""
    lines: dict[str, list[str]] = {}
    for line in value.splitlines()[1:]:
        tag, data = line.split("\t", 1)
        lines.setdefault(tag, []).append(data)
    return {tag: read_trace(found) for tag, found in lines.items() if tag in CELLS}


def test_ar_runs_first_then_row_by_row_and_each_cell_is_a_trace(page) -> None:
    grid, _ = page
    *_, last = grid.run("visitor", controls())
    head, lines = parsed(last)
    assert head["columns"] == [2, 4]
    assert head["rows"] == [
        {"tau": 0.5, "lossless": False},
        {"tau": 0.9, "lossless": False},
        {"tau": 0.0, "lossless": True},
    ]
    tags = [tag for tag, _ in lines if tag in CELLS]
    assert tags == sorted(tags, key=CELLS.index), "one after the other"
    found = traces(last)
    assert list(found) == CELLS
    settings = {name: trace.header.settings for name, trace in found.items()}
    assert settings["ar"].method == "ar"
    assert (settings["r0c1"].tau, settings["r0c1"].block_size) == (0.5, 4)
    assert settings["r2c0"].lossless
    assert folds.tpf(found["ar"].events) == 1
    assert folds.tpf(found["r0c1"].events) == 4
    parted = folds.first_divergence(found["r0c1"].events, found["ar"].events)
    assert parted == WRONG_FROM
    assert folds.first_divergence(found["r0c0"].events, found["ar"].events) is None
    said = of_tag(last, "status")
    assert said[0]["text"].startswith("Plain AR first")
    assert "Cell 2 of 6: τ 0.5, B 4…" in [each["text"] for each in said]
    assert said[-1] == {"text": "Finished: 6 of 6 cells ran.", "kind": "finished"}


def test_no_cell_shares_a_forward(page) -> None:
    grid, backend = page
    served = grid._engines.get("scripted")
    backend.forward_seconds = 0.002
    others = served.engine.submit(Request((1,), DecodeSettings("ar", max_new_tokens=40)))
    values = grid.run("visitor", controls(max_new_tokens=4))
    *_, last = values
    assert others.wait(60)
    assert others.num_sharing == 0
    assert list(traces(last)) == CELLS
    assert any("ahead of yours" in each["text"] for each in of_tag(last, "status"))


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
    assert of_tag(last, "status")[-1] == {"text": "Stopped: 0 of 6 cells ran.", "kind": "stopped"}
    assert len(grid.runs) == 0


def test_a_closed_tab_ends_the_run(page) -> None:
    grid, backend = page
    backend.forward_seconds = 0.03
    values = grid.run("visitor", controls())
    while '"type":"step"' not in next(values):
        pass
    run = grid.runs.of("visitor").transcripts[0].run
    values.close()
    assert run.wait(5)
    assert run.events_since(0)[-1].reason == "cancelled"


def test_visitors_never_see_each_others_cells(page) -> None:
    grid, _ = page
    last: dict[str, str] = {}

    def visit(name: str, tau: float) -> None:
        for value in grid.run(name, controls(taus=[tau], prompt=f"Say {name}.")):
            last[name] = value

    visitors = [threading.Thread(target=visit, args=each) for each in (("one", 0.5), ("two", 0.9))]
    for each in visitors:
        each.start()
    for each in visitors:
        each.join(60)
    for name, tau in (("one", 0.5), ("two", 0.9)):
        found = traces(last[name])
        assert list(found) == ["ar", "r0c0", "r0c1", "r1c0", "r1c1"]
        assert {trace.header.prompt for trace in found.values()} == {f"Say {name}."}
        assert found["r0c0"].header.settings.tau == tau


def test_a_second_grid_of_a_visitor_replaces_the_first(page) -> None:
    grid, backend = page
    backend.forward_seconds = 0.02
    seen: list[str] = []
    first = threading.Thread(target=lambda: seen.extend(grid.run("visitor", controls())))
    first.start()
    while not (seen and '"type":"step"' in seen[-1]):
        first.join(0.01)
    backend.forward_seconds = 0.0
    *_, last = grid.run("visitor", controls(taus=[]))
    first.join(10)
    assert not first.is_alive()
    assert of_tag(seen[-1], "status")[-1]["kind"] == "stopped"
    assert of_tag(last, "status")[-1]["text"] == "Finished: 2 of 2 cells ran."


def test_the_first_cell_is_refused_where_no_place_is_free(tmp_path: Path) -> None:
    handlers, backend = make_page(tmp_path, max_runs=1, max_waiting=0)
    backend.forward_seconds = 0.02
    engine = handlers.engines.get("scripted").engine
    taker = engine.submit(Request((1,), DecodeSettings("ar", max_new_tokens=500)))
    *_, last = handlers.grid.run("visitor", controls())
    taker.cancel()
    handlers.engines.close()
    status = of_tag(last, "status")[-1]
    assert status["kind"] == "error"
    assert "try again" in status["text"]


def test_a_later_cell_waits_for_a_place(page, monkeypatch) -> None:
    grid, _ = page
    engine = grid._engines.get("scripted").engine
    submit, is_busy = engine.submit, iter([False, True, True, False])  # the reference comes first

    def crowded(request: Request, **how: object) -> object:
        if next(is_busy):
            raise EngineBusy("All places are taken.")
        return submit(request, **how)

    monkeypatch.setattr(engine, "submit", crowded)
    monkeypatch.setattr("app.grid.run.HEARTBEAT_SECONDS", 0.01)
    *_, last = grid.run("visitor", controls(taus=[], block_sizes=[2]))
    said = [each["text"] for each in of_tag(last, "status")]
    assert said[-1] == "Finished: 1 of 1 cells ran."
    assert FULL in said


def test_the_time_limit_holds_for_the_whole_grid(tmp_path: Path) -> None:
    handlers, backend = make_page(tmp_path, max_seconds=0.5)
    backend.forward_seconds = 0.01
    *_, last = handlers.grid.run("visitor", controls())
    handlers.engines.close()
    status = of_tag(last, "status")[-1]
    assert status["kind"] == "stopped"
    assert status["text"].startswith("The time limit of 0.5 s is over: ")


def test_texts_are_judged_where_that_can_be(page) -> None:
    grid, _ = page
    *_, last = grid.run("visitor", controls(prompt=grid.examples.text(0, "scripted"), taus=[0.5]))
    judged = of_tag(last, "verdict")
    assert [each["cell"] for each in judged] == ["ar", "r0c0", "r0c1", "r1c0", "r1c1"]
    assert not any(each["right"] for each in judged)
    *_, last = grid.run("visitor", controls(taus=[0.5]))
    assert of_tag(last, "verdict") == []


def test_a_fault_ends_the_grid_with_a_sentence(page, monkeypatch) -> None:
    grid, backend = page
    monkeypatch.setattr(backend, "decode", lambda *_: iter([1 / 0 for _ in (1,)]))
    *_, last = grid.run("visitor", controls())
    status = of_tag(last, "status")[-1]
    assert status["kind"] == "error"
    assert status["text"].startswith("Decoding failed (ZeroDivisionError)")


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"prompt": " "}, "prompt", "Type a prompt or choose an example."),
        ({"taus": [], "lossless": False}, "taus", "Choose at least one τ, or the lossless row."),
        ({"block_sizes": []}, "block_sizes", "Choose at least one B."),
        ({"block_sizes": [2, 16]}, "block_sizes", "at most 8, this checkpoint's trained depth"),
        ({"block_sizes": ["auto", 2]}, "block_sizes", "Choose values from the list."),
        ({"block_sizes": [2.5]}, "block_sizes", "whole number"),
        ({"taus": [1.5]}, "taus", "The threshold τ must be a number from 0 to 1."),
        ({"taus": [float("nan")]}, "taus", "The threshold τ must be a number from 0 to 1."),
        ({"taus": [[]]}, "taus", "The threshold τ must be a number from 0 to 1."),
        ({"taus": "all"}, "taus", "Choose up to 20 values from the list."),
        ({"taus": [0.5] * 10_000}, "taus", "Choose up to 20 values from the list."),
        (
            {"taus": list(TAUS), "block_sizes": [2, 4, 8]},
            "taus",
            "Choose at most 20 cells; 9 rows of 3 are 27.",
        ),
        ({"lossless": "on"}, "lossless", "The lossless row is either on or off."),
        ({"max_new_tokens": 257}, "max_new_tokens", "Choose at most 256 tokens per cell."),
        ({"checkpoint": "x"}, "checkpoint", "Choose a checkpoint from the list."),
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


def test_what_the_tab_opens_with_can_run() -> None:
    usual = controls(taus=list(USUAL_TAUS), block_sizes=list(USUAL_BLOCK_SIZES), max_new_tokens=96)
    order = read_grid_order(usual, Limits(8000, 512, 8))
    assert order.num_cells == 15
    assert len(list(order.cells())) == 16


def test_examples_turn_and_depth_limits_b(page) -> None:
    grid, _ = page
    prompts = [grid.examples.text(turn, "scripted") for turn in range(9)]
    assert len(set(prompts)) == 9
    assert grid.block_sizes("scripted") == [2, 3, 4, 6, 8]
    assert grid.block_sizes("x") == list(BLOCK_SIZES)
