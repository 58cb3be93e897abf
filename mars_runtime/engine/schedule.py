"""Whose turn it is: pure bookkeeping, tested alone. Knows no thread, model, tensor or time of day.

A job is what is served as one: a single run, or the lanes of a race. Jobs take turns, one forward
each; inside a race the lane whose own clock is behind is next, so the clocks advance together.
After a forward of s seconds a job of pace N rests N * s seconds, in which others use the device.
Times are seconds on one monotonic clock that the caller reads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar


class FullError(Exception):
    """No job can be taken: the waiting line is full."""


class Lane:
    """One run of a job. ``clock``: its own device seconds, without any wait."""

    def __init__(self, deadline: float = math.inf) -> None:
        self.clock = 0.0
        self.deadline = deadline
        self.is_finished = False


L = TypeVar("L", bound=Lane)


class Job(Generic[L]):
    """Lanes that are served as one, at one pace."""

    def __init__(self, lanes: Sequence[L], pace: float = 0.0) -> None:
        assert lanes, "a job has a lane"
        self.lanes = tuple(lanes)
        self.pace = pace
        self._rests_since = -math.inf
        self._last_seconds = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether every lane is."""
        return all(lane.is_finished for lane in self.lanes)

    @property
    def ready_at(self) -> float:
        """When the rest is over; follows a change of pace at once."""
        return self._rests_since + self.pace * self._last_seconds

    def next_lane(self) -> L:
        """The unfinished lane whose clock is furthest behind, the earlier one of equals."""
        return min((lane for lane in self.lanes if not lane.is_finished), key=lambda a: a.clock)

    def spend(self, lane: L, seconds: float, now: float, has_rest: bool = True) -> None:
        """A forward of ``lane`` took ``seconds`` and was over at ``now``.

        Without ``has_rest`` the job goes on at once: nothing is to be seen after a prefill.
        """
        lane.clock += seconds
        self._rests_since, self._last_seconds = now, seconds if has_rest else 0.0


class Schedule(Generic[L]):
    """Jobs being served, ``max_active`` at a time, and a line of ``max_waiting`` behind them."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        assert max_active >= 1, "room for a job"
        assert max_waiting >= 0, "a line has no negative length"
        self._max_active = max_active
        self._max_waiting = max_waiting
        self._active: deque[Job[L]] = deque()
        self._waiting: deque[Job[L]] = deque()

    def __len__(self) -> int:
        return len(self._active) + len(self._waiting)

    @property
    def num_active(self) -> int:
        """Jobs that take turns."""
        return len(self._active)

    def add(self, job: Job[L]) -> None:
        """Serve the job, or let it wait. Raises FullError."""
        if len(self._active) < self._max_active:
            self._active.append(job)
        elif len(self._waiting) < self._max_waiting:
            self._waiting.append(job)
        else:
            raise FullError

    def place(self, job: Job[L]) -> int:
        """Jobs that must end before this one gets its first turn; 0 once it is served or over."""
        return 1 + self._waiting.index(job) if job in self._waiting else 0

    def next_turn(self, now: float) -> tuple[Job[L], L] | None:
        """The job that waited longest for a turn and is not resting, at the end of the line now."""
        for job in self._active:
            if job.ready_at <= now:
                self._active.remove(job)
                self._active.append(job)
                return job, job.next_lane()
        return None

    def next_wake(self) -> float:
        """When a rest or a deadline is over next; infinity if nothing is to come."""
        rests = (job.ready_at for job in self._active)
        deadlines = (lane.deadline for lane in self.lanes())
        return min((*rests, *deadlines), default=math.inf)

    def next_deadline(self) -> float:
        """The earliest deadline of an unfinished lane, served or waiting."""
        return min((lane.deadline for lane in self.lanes()), default=math.inf)

    def lanes(self) -> Iterator[L]:
        """Every unfinished lane, served ones first."""
        for job in (*self._active, *self._waiting):
            yield from (lane for lane in job.lanes if not lane.is_finished)

    def finish(self, job: Job[L], lane: L) -> None:
        """The lane is over; with its last one the job makes room for the next in line."""
        lane.is_finished = True
        if not job.is_finished:
            return
        for line in (self._active, self._waiting):
            if job in line:
                line.remove(job)
        while self._waiting and len(self._active) < self._max_active:
            self._active.append(self._waiting.popleft())
