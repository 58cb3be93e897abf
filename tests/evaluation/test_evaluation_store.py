"""What is finished is not measured again; what a crash cut short is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.plan import Cell
from mars_runtime.lab.evaluation.store import CellStore
from mars_runtime.settings import DecodeSettings

CELL = Cell("mars-tiny", "f00d", "float32", "symbolic", "cafe", 2, DecodeSettings())
OUTCOMES = (
    Outcome(4, 2, True, True, "aa", "line\nbreak \u2028 and 🙂"),
    Outcome(3, 3, False, None, "bb", ""),
)


def test_a_cell_comes_back_as_it_was(tmp_path: Path):
    path = tmp_path / "deep" / "cells.jsonl"
    CellStore(path).put(CELL, OUTCOMES)
    assert CellStore(path).get(CELL) == OUTCOMES
    assert CellStore(path).get(replace(CELL, family="reading")) is None


def test_a_line_cut_short_is_passed_over(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    store = CellStore(path)
    store.put(CELL, OUTCOMES)
    second = replace(CELL, family="reading")
    store.put(second, OUTCOMES)
    path.write_bytes(path.read_bytes()[:-30])
    again = CellStore(path)
    assert again.get(CELL) == OUTCOMES
    assert again.get(second) is None
    again.put(second, OUTCOMES)
    assert CellStore(path).get(second) == OUTCOMES


def test_a_fresh_start_forgets(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    CellStore(path).put(CELL, OUTCOMES)
    assert CellStore(path, is_fresh=True).get(CELL) is None


def test_foreign_lines_do_no_harm(tmp_path: Path):
    path = tmp_path / "cells.jsonl"
    path.write_text('[]\n{"key": 1}\n{"key": "a", "outcomes": [{"no": 1}]}\nnull\n')
    assert CellStore(path).get(CELL) is None
