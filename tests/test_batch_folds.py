"""Figures of a batch, checked by hand on a few forwards."""

from __future__ import annotations

import pytest

from mars_runtime import batch_folds
from mars_runtime.batch_folds import Cell
from mars_runtime.events import End, Event, IdleRow, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.settings import DecodeSettings

SETTINGS = DecodeSettings()


def took(row: int, start: int, count: int, cache: tuple[int, int, int], stop: Stop) -> RowStep:
    cursor, pending, fed = cache
    accepted = tuple(range(start, start + count))
    proposals = tuple(Proposal(token, 0.9, ()) for token in accepted)
    return RowStep(row, start, cursor, pending, fed, proposals, accepted, 0, SETTINGS, stop)


EVENTS: list[Event] = [
    Prefill(5, 0.25, 4000),
    Step((took(0, 0, 1, (2, 1, 1), "block"), took(1, 0, 1, (3, 1, 1), "block")), 0.5, (), True),
    Step((took(0, 1, 3, (3, 1, 4), "block"), took(1, 1, 1, (4, 1, 4), "threshold")), 1.0),
    Step((took(1, 2, 2, (4, 2, 4), "eos"),), 1.0, (IdleRow(0, "block", 3, 4, 4),)),
    Step((took(0, 4, 1, (3, 4, 4), "limit"),), 0.5, (IdleRow(1, "finished", 4, 4, 4),), True),
    Prefill(2, 0.25, 9000),
    Step((took(2, 0, 1, (2, 1, 1), "limit"),), 1.0),
    End("limit"),
]


def test_totals() -> None:
    found = batch_folds.totals(EVENTS)
    assert (found.num_tokens, found.num_forwards, found.num_commits) == (10, 5, 2)
    assert (found.num_row_forwards, found.num_idle) == (9, 2)
    assert (found.seconds, found.prefill_seconds, found.peak_cache_bytes) == (4.0, 0.5, 9000)
    assert found.tokens_per_second == 2.5
    assert found.effective_tpf == pytest.approx(10 / 9)
    assert found.idle_share == pytest.approx(2 / 9)


def test_lanes() -> None:
    found = batch_folds.lanes(EVENTS)
    assert list(found) == [0, 1, 2]
    assert found[0] == [
        Cell(0, 1, None, True, 2, 1, 0),
        Cell(1, 3, None, False, 3, 1, 3),
        Cell(2, 0, "block", False, 3, 4, 0),
        Cell(3, 1, None, True, 3, 4, 0, "limit"),
    ]
    assert found[1][2:] == [
        Cell(2, 2, None, False, 4, 2, 2, "eos"),
        Cell(3, 0, "finished", True, 4, 4, 0),
    ]
    assert [cell.forward for cell in found[2]] == [4]


def test_timeline_leaves_prefill_out() -> None:
    assert batch_folds.timeline(EVENTS) == [(0, 0), (0.5, 2), (1.5, 6), (2.5, 8), (3, 9), (4, 10)]


def test_nothing_yet() -> None:
    for events in ([], [Prefill(3, 0.5)]):
        found = batch_folds.totals(events)
        assert found.tokens_per_second == found.effective_tpf == found.idle_share == 0
        assert batch_folds.lanes(events) == {}
        assert batch_folds.timeline(events) == [(0.0, 0)]
