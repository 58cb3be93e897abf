"""Cells of benchmarks as tables, by hand."""

from __future__ import annotations

from typing import Any

from mars_runtime.lab.harness.results import Cell, tables
from mars_runtime.statistics import Estimate, wilson

PAPER: dict[str, Any] = {
    "base": "Q",
    "benchmarks": [{"name": "AR", "accuracy": {"IFEval": 48.44}, "tpf": {"IFEval": 1.0}}],
}


def cell(way: str, task: str, num_answers: int) -> Cell:
    two = Estimate(2.0, 1.5, 2.5)
    right = wilson(num_answers // 2, num_answers)
    return Cell("some", "f00d", way, {}, task, num_answers, 541, right, two, two, 1.0, 0.0)


def test_a_cell_of_fewer_answers_says_so_and_the_paper_s_rows_are_named():
    cells = [cell("AR", "ifeval_local", 50), cell("MARS", "ifeval_local", 16)]
    accuracy, rates = tables(cells, PAPER)
    assert [line[0] for line in accuracy.lines] == ["some · AR", "some · MARS", "paper, Q · AR"]
    assert accuracy.lines[0][1] == "50.0 [36.6, 63.4]"
    assert accuracy.lines[1][1].endswith("], n = 16")
    assert [line[1] for line in rates.lines] == [
        "2.00 [1.50, 2.50]",
        "2.00 [1.50, 2.50], n = 16",
        "1.00",
    ]
    assert accuracy.lines[0][2] == "–"
