"""The grid, what is finished on disk, and figures on outcomes written by hand: of families, and of
open-ended requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mars_runtime.lab.evaluation.grid import Grid, GridCell
from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.report import (
    average,
    request_figures,
    summarise,
    table,
)
from mars_runtime.lab.evaluation.store import CellStore
from mars_runtime.settings import DecodeSettings, describe

CELL = GridCell("mars-tiny", "f00d", "float32", "symbolic", "cafe", 50, DecodeSettings())


def test_grid_is_ar_then_mars_then_lossless():
    grid = Grid(taus=(0.5, 0.95), block_sizes=(2, 4), lossless_taus=(0.0,))
    assert [describe(settings) for settings in grid.settings()] == [
        "AR",
        "MARS τ=0.5 B=2",
        "MARS τ=0.95 B=2",
        "MARS τ=0.5 B=4",
        "MARS τ=0.95 B=4",
        "lossless τ=0 B=8",
    ]


@pytest.mark.parametrize(
    "other",
    [
        replace(CELL, fingerprint="beef"),
        replace(CELL, prompts_id="beef"),
        replace(CELL, dtype="bfloat16"),
        replace(CELL, settings=DecodeSettings(tau=0.9)),
        replace(CELL, settings=DecodeSettings(lossless=True)),
        replace(CELL, settings=DecodeSettings(max_new_tokens=16)),
    ],
)
def test_everything_that_changes_a_result_changes_the_key(other: GridCell):
    assert other.key != CELL.key


def test_groups_and_lookup_are_measured_where_they_are_asked():
    grid = Grid(
        taus=(), lossless_block_sizes=(4, 2), mask_layouts=("last", "every"), has_lookup=True
    )
    assert [describe(settings) for settings in grid.settings()] == [
        "AR",
        "lossless τ=0 B=4",
        "lossless τ=0 B=2",
        "lossless τ=0 B=4 groups",
        "lossless τ=0 B=2 groups",
        "AR + lookup",
        "lossless τ=0 B=4 groups + lookup",
        "lossless τ=0 B=2 groups + lookup",
    ]
    assert all(item.lossless for item in list(grid.settings())[1:])


OUTCOMES = (
    Outcome(4, 2, True, True, "aa", "line\nbreak \u2028 and 🙂"),
    Outcome(3, 3, False, None, "bb", ""),
)


def test_a_cell_comes_back_as_it_was(tmp_path: Path):
    path = tmp_path / "deep" / "cells.jsonl"
    CellStore(path).put(CELL.key, OUTCOMES, label=CELL.label)
    assert list(json.loads(path.read_text())) == ["key", "label", "outcomes"]
    assert CellStore(path).get(CELL.key) == OUTCOMES
    assert CellStore(path).get(replace(CELL, family="reading").key) is None


def test_a_line_cut_short_is_passed_over(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    store = CellStore(path)
    store.put(CELL.key, OUTCOMES, label=CELL.label)
    second = replace(CELL, family="reading")
    store.put(second.key, OUTCOMES, label=second.label)
    path.write_bytes(path.read_bytes()[:-30])
    again = CellStore(path)
    assert again.get(CELL.key) == OUTCOMES
    assert again.get(second.key) is None
    again.put(second.key, OUTCOMES, label=second.label)
    assert CellStore(path).get(second.key) == OUTCOMES


AR = DecodeSettings(method="ar", tau=1.0, block_size=1)
MARS = DecodeSettings(method="mars", tau=0.95, block_size=4)


def outcome(num_tokens: int, num_forwards: int, is_right: bool | None, output: str) -> Outcome:
    return Outcome(num_tokens, num_forwards, True, is_right, output, "")


def cell(family: str, settings: DecodeSettings, checkpoint: str = "mars-tiny") -> GridCell:
    return GridCell(checkpoint, checkpoint, "float32", family, family, 2, settings)


RESULTS = {
    cell("symbolic", AR): (outcome(4, 4, True, "a"), outcome(6, 6, True, "b")),
    cell("reading", AR): (outcome(4, 4, False, "c"), outcome(6, 6, True, "d")),
    cell("natural", AR): (outcome(8, 8, None, "e"), outcome(8, 8, None, "f")),
    cell("symbolic", MARS): (outcome(4, 2, True, "a"), outcome(6, 2, False, "x")),
    cell("reading", MARS): (outcome(4, 1, False, "c"), outcome(6, 6, True, "d")),
    cell("natural", MARS): (outcome(8, 8, None, "e"), outcome(8, 4, None, "f")),
}


def test_a_summary_holds_the_mean_tpf_of_rows():
    actual = {item.cell: item for item in summarise(RESULTS)}
    summary = actual[cell("symbolic", MARS)]
    assert summary.tpf.value == pytest.approx((2.0 + 3.0) / 2)
    assert summary.accuracy is not None
    assert summary.accuracy.value == 0.5
    assert summary.agreement == 0.5
    assert (summary.num_tokens, summary.num_forwards, summary.ended) == (10, 4, 1.0)
    assert (summary.right, summary.first_mask, summary.looped) == (0.5, None, 0.0)


def test_averages_count_families_alike_and_compare_with_ar_prompt_by_prompt():
    ar, mars = average(RESULTS)
    assert ar.accuracy.value == pytest.approx(0.75)
    assert ar.accuracy_change is None
    assert mars.accuracy.value == pytest.approx(0.5)
    assert mars.accuracy_change is not None
    assert mars.accuracy_change.value == pytest.approx(-0.25)
    assert mars.tpf.value == pytest.approx(((2 + 3) / 2 + (4 + 1) / 2) / 2)
    assert mars.agreement == pytest.approx(0.75)
    assert ar.agreement == 1.0


def test_another_checkpoint_is_never_the_measure():
    results = {cell("reading", MARS, "other"): RESULTS[cell("reading", MARS)], **RESULTS}
    other = next(item for item in average(results) if item.checkpoint == "other")
    assert other.accuracy_change is None
    assert other.agreement is None


LOSSLESS = DecodeSettings(tau=0.0, block_size=4, lossless=True)


def open_cell(family: str, settings: DecodeSettings) -> GridCell:
    return GridCell("some", "f00d", "int4", family, family, 2, settings)


def open_outcome(output: str, taken: tuple[int, ...], offered: tuple[int, ...] = ()) -> Outcome:
    offered = offered or (1,) * len(taken)
    return Outcome(sum(taken), len(taken), True, None, output, "", taken, offered, output == "l")


OPEN_RESULTS = {
    open_cell("chat", AR): (open_outcome("a", (1,) * 4), open_outcome("l", (1,) * 6)),
    open_cell("code", AR): (open_outcome("c", (1,) * 6), open_outcome("d", (1,) * 6)),
    open_cell("natural", AR): (open_outcome("e", (1,) * 9),) * 2,
    open_cell("chat", LOSSLESS): (
        open_outcome("a", (1, 3), (1, 4)),
        open_outcome("l", (1, 2, 3), (1, 4, 4)),
    ),
    open_cell("code", LOSSLESS): (
        open_outcome("c", (1, 3, 2), (1, 4, 4)),
        open_outcome("x", (6,), (6,)),
    ),
}


def test_kinds_count_alike_and_ar_is_the_measure():
    ar, lossless = request_figures(OPEN_RESULTS)
    assert (ar.tpf.value, ar.agreement, ar.by_place) == (1.0, 1.0, (1.0,))
    assert set(lossless.by_kind) == {"chat", "code"}
    assert lossless.by_kind["chat"].value == 2.0
    assert lossless.by_kind["code"].value == 4.0
    assert lossless.tpf.value == 3.0
    assert lossless.agreement == 0.75
    assert lossless.looped == 0.25
    shown = table(OPEN_RESULTS)
    assert (shown.columns[-3:], len(shown.lines)) == (("chat", "code", "natural"), 2)
    # Six forwards offered two tokens or more; one of them six.
    assert lossless.by_place == (1.0, 1.0, 4 / 6, 1 / 6, 1.0, 1.0)
