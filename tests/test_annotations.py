"""Annotations of trace lines: what the page draws, computed once, when a line is written."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ui.recordings import load
from mars_runtime.runs import folds
from mars_runtime.runs.annotations import LETTERS, NUM_PARTS, STUDENT_T, Annotations, spread
from mars_runtime.runs.events import Event, RowStep, Step
from mars_runtime.runs.loops import find_loop
from mars_runtime.runs.trace import Header, Trace, read_trace
from mars_runtime.settings import DecodeSettings

REFERENCE = json.loads((Path(__file__).parent / "provenance.json").read_text("utf-8"))
SETTINGS = DecodeSettings()
HEADER = Header("c", "p", (1,), SETTINGS)


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in Trace.of(HEADER, events, lambda _: b"a").lines()]
    return [row for line in lines if line["type"] == "step" for row in line["rows"]]


def steps_of(groups: list[list[int]], seconds: float = 0.5) -> list[Event]:
    starts = [sum(map(len, groups[:at])) for at in range(len(groups))]
    return [
        Step((RowStep(0, start, 0, 1, 8, (), tuple(group), 0, SETTINGS, "block"),), seconds)
        for start, group in zip(starts, groups, strict=True)
    ]


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case["name"])
def test_a_row_has_a_letter_for_each_token_unless_all_are_ars_own(case: dict[str, Any]) -> None:
    events = read_trace([json.dumps(line) for line in case["lines"]]).events
    letters = ["".join(map(LETTERS.__getitem__, sources)) for sources in case["sources"]]
    assert [row.get("sources", "a" * len(row["accepted"])) for row in rows_of(events)] == letters
    assert all(row.get("sources") != "a" * len(row["accepted"]) for row in rows_of(events))
    assert [list(source) for source in folds.sources(events)] == case["sources"]


def test_the_line_that_completes_the_evidence_has_the_loop() -> None:
    groups = [[1, 2], [3], *[[4, 5, 4]] * 40]
    loops = [row.get("loop") for row in rows_of(steps_of(groups))]
    loop = find_loop([token for group in groups for token in group])
    assert loop is not None
    assert [item for item in loops if item] == [[loop.kept, loop.end]]
    place = loops.index([loop.kept, loop.end])
    assert sum(map(len, groups[:place])) < loop.end <= sum(map(len, groups[: place + 1]))


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=60))
def test_the_spread_is_that_of_the_means_of_the_parts(seconds: list[float]) -> None:
    num = min(NUM_PARTS, len(seconds))
    parts = [
        seconds[at * len(seconds) // num : (at + 1) * len(seconds) // num] for at in range(num)
    ]
    means = [statistics.fmean(part) for part in parts]
    error = statistics.stdev(means) / math.sqrt(num) / statistics.fmean(means)
    clocks = [sum(seconds[: at + 1]) for at in range(len(seconds))]
    assert spread(clocks) == pytest.approx(STUDENT_T[num - 2] * error, abs=2e-6)


def test_there_is_no_spread_before_the_second_pass_or_without_time() -> None:
    first, *rest = rows_of(steps_of([[1], [2], [3]]))
    assert "spread" not in first
    assert [row["spread"] for row in rest] == [0, 0]
    assert not any("spread" in row for row in rows_of(steps_of([[1], [2]], seconds=0)))


def test_committed_recordings_have_the_fields_of_this_fold() -> None:
    for recording in load():
        for name, trace in recording.traces().items():
            step = f'{name}\t{{"type":"step"'
            lines = [line for line in recording.value.splitlines() if line.startswith(step)]
            rows = [json.loads(line.removeprefix(f"{name}\t"))["rows"][0] for line in lines]
            assert len(rows) > 1
            assert list(map(_fields, rows)) == list(map(_fields, rows_of(trace.events)))


def _fields(row: dict[str, Any]) -> list[Any]:
    return [row.get(name) for name in Annotations.__annotations__]
