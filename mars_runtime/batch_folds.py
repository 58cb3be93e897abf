"""Figures of a whole batch as pure functions of its events: lanes, idle rows, totals.

A row-forward is one row in one forward, whether it took tokens, took part in a commit or sat idle.
Rows that have left a batch cost none. Seconds are device time, prefill apart. Knows no model,
drawing or time of day; figures of one row alone are in ``folds.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from mars_runtime.events import Event, IdleRow, Prefill, RowStep, Step, Wait
from mars_runtime.folds import prefill_seconds

End = Literal["eos", "limit"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row in one forward.

    forward: counted from 0 over the run. num_accepted: tokens it took, 0 when idle. wait: why it
    was idle, None when it was not. committed, filling, scratch: positions of the row's cache that
    were final before the forward, accepted but not final, and fed as masks. end: how the row ended
    here, if it did.
    """

    forward: int
    num_accepted: int
    wait: Wait | None
    is_commit: bool
    committed: int
    filling: int
    scratch: int
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """A batch in figures; each is 0 where there is nothing yet.

    num_tokens: over all rows, ends of turn included. num_forwards: of the whole batch, of which
    num_commits are commits. num_row_forwards: rows times forwards, num_idle of them idle.
    seconds: of decoding, prefill_seconds apart. peak_cache_bytes: of the largest group.
    """

    num_tokens: int
    num_forwards: int
    num_commits: int
    num_row_forwards: int
    num_idle: int
    seconds: float
    prefill_seconds: float
    peak_cache_bytes: int

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all rows per second of decoding."""
        return _ratio(self.num_tokens, self.seconds)

    @property
    def effective_tpf(self) -> float:
        """Tokens a row-forward: idle ones and commits count as forwards like any other."""
        return _ratio(self.num_tokens, self.num_row_forwards)

    @property
    def idle_share(self) -> float:
        """Share of row-forwards that took nothing."""
        return _ratio(self.num_idle, self.num_row_forwards)


def steps(events: Iterable[Event]) -> list[Step]:
    """The forwards, prefill apart."""
    return [event for event in events if isinstance(event, Step)]


def totals(events: Sequence[Event]) -> Totals:
    """All figures of the batch so far."""
    forwards = steps(events)
    num_idle = sum(len(step.idle) for step in forwards)
    return Totals(
        num_tokens=sum(map(num_accepted, forwards)),
        num_forwards=len(forwards),
        num_commits=sum(step.is_commit for step in forwards),
        num_row_forwards=sum(len(step.rows) for step in forwards) + num_idle,
        num_idle=num_idle,
        seconds=sum(step.seconds for step in forwards),
        prefill_seconds=prefill_seconds(events),
        peak_cache_bytes=peak_cache_bytes(events),
    )


def num_accepted(step: Step) -> int:
    """Tokens that a forward gave to all rows together."""
    return sum(len(row.accepted) for row in step.rows)


def peak_cache_bytes(events: Iterable[Event]) -> int:
    """Keys and values of the largest group; groups follow each other and free theirs."""
    return max((event.cache_bytes for event in events if isinstance(event, Prefill)), default=0)


def timeline(events: Sequence[Event]) -> list[tuple[float, int]]:
    """(seconds of decoding, tokens of all rows so far): at the start, then after each forward."""
    forwards = steps(events)
    clocks = accumulate((step.seconds for step in forwards), initial=0.0)
    counts = accumulate(map(num_accepted, forwards), initial=0)
    return list(zip(clocks, counts, strict=True))


def lanes(events: Iterable[Event]) -> dict[int, list[Cell]]:
    """Row -> what each forward that it was in did for it."""
    found: dict[int, list[Cell]] = {}
    for index, step in enumerate(steps(events)):
        for row in step.rows:
            found.setdefault(row.row, []).append(_active_cell(index, row, step.is_commit))
        for idle in step.idle:
            found.setdefault(idle.row, []).append(_idle_cell(index, idle, step.is_commit))
    return dict(sorted(found.items()))


def _active_cell(index: int, row: RowStep, is_commit: bool) -> Cell:
    end: End | None = row.stop if row.stop == "eos" or row.stop == "limit" else None
    scratch = row.num_fed - row.num_pending
    committed, filling = row.cursor, row.num_pending
    return Cell(index, len(row.accepted), None, is_commit, committed, filling, scratch, end)


def _idle_cell(index: int, idle: IdleRow, is_commit: bool) -> Cell:
    scratch = idle.num_fed - idle.num_pending
    return Cell(index, 0, idle.wait, is_commit, idle.cursor, idle.num_pending, scratch)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
