"""Scheduler: decides which job uses the device next. Has no thread, model or clock.

A shared job is a single run: all ready shared jobs take part in the same forward pass, and between
    forward passes one prompt is prefilled in chunks. Any other job (the lanes of a race, a custom
    decoder run) is exclusive. Rules against starvation:

- Up to ``max_active`` jobs take turns; the least recently served ready job is next.
- The n-th job of one owner is not served before the n-th job of another (start-time fair queuing,
  Goyal, Vin and Cheng 1997, all jobs with weight one), and no owner can fill the queue.
- Slow motion: after a forward pass of s seconds, a job with pace N pauses for N * s seconds. It is
  suspended while the queue is not empty.
- An exclusive job at full speed uses the device until it ends, except for the forward passes of
  jobs in slow motion. It begins when the earlier shared jobs at full speed have ended, and later
  jobs at full speed wait for it.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

MAX_OWNERS = 1000  # maximum number of owners remembered after their jobs have ended
Kind = Literal["alone", "read", "step"]
"""An event of a lane of an exclusive job; a chunk of a prompt; a shared forward pass."""


class FullError(Exception):
    """The queue is full, or full for this owner."""


class Lane:
    """One run of a job.

    clock: device time so far in seconds, without waiting.
    is_read: whether its prompt is prefilled (shared jobs only).
    """

    job: Job[Any]

    def __init__(self, deadline: float = math.inf) -> None:
        self.clock = 0.0
        self.deadline = deadline
        self.is_read = False
        self.is_finished = False


L = TypeVar("L", bound=Lane)


class Job(Generic[L]):
    """Lanes that are scheduled together, with the same pace. A shared job has a single lane."""

    def __init__(
        self, lanes: Sequence[L], pace: float = 0.0, is_shared: bool = False, owner: str = ""
    ) -> None:
        assert lanes, "a job needs at least one lane"
        assert len(lanes) == 1 or not is_shared, "a shared job has a single lane"
        self.lanes = tuple(lanes)
        for lane in lanes:
            lane.job = self
        self.pace = pace
        self.is_shared = is_shared
        self.owner = owner
        self.number = 0  # position in the fair order, set by the scheduler
        self.last_turn = 0
        self._rests_since = -math.inf
        self._last_seconds = 0.0

    @property
    def is_finished(self) -> bool:
        return all(lane.is_finished for lane in self.lanes)

    @property
    def ready_at(self) -> float:
        return self._rests_since + self.pace * self._last_seconds

    def next_lane(self) -> L:
        return min((lane for lane in self.lanes if not lane.is_finished), key=lambda a: a.clock)

    def spend(self, lane: L, seconds: float, now: float, has_rest: bool = True) -> None:
        """No pause follows a prefill, which emits no tokens."""
        lane.clock += seconds
        self._rests_since, self._last_seconds = now, seconds if has_rest else 0.0


@dataclass(frozen=True, slots=True)
class DeviceTurn(Generic[L]):
    """is_waited_for: whether other lanes are ready and wait for the end of this turn."""

    kind: Kind
    lanes: tuple[L, ...]
    is_waited_for: bool = False


class Scheduler(Generic[L]):
    def __init__(self, max_active: int, max_waiting: int) -> None:
        assert max_active >= 1, "max_active must be at least 1"
        assert max_waiting >= 0, "max_waiting must not be negative"
        self.max_active = max_active
        self._max_waiting = max_waiting
        # Both lists are sorted by number; equal numbers are in order of submission.
        self._active: list[Job[L]] = []
        self._waiting: list[Job[L]] = []
        self._begun = 0  # highest number of a job that has had a turn
        self._latest: dict[str, int] = {}  # owner -> number of its latest job
        self._num_turns = 0
        self._has_read = False

    def __len__(self) -> int:
        return len(self._active) + len(self._waiting)

    @property
    def num_active(self) -> int:
        return len(self._active)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def add(self, job: Job[L]) -> None:
        """Raises FullError."""
        if len(self._active) >= self.max_active and not self._accepts(job.owner):
            raise FullError
        job.number = self._next_number(job.owner)
        if len(self._active) < self.max_active:
            self._serve(job)
        else:
            insort(self._waiting, job, key=_number)

    def _next_number(self, owner: str) -> int:
        """Return a number above those of the owner's earlier jobs, and at least the highest of a
        job that has had a turn.
        """
        if not len(self):
            self._latest.clear()
        number = max(self._begun, self._latest.pop(owner, -1) + 1)
        self._latest[owner] = number
        if len(self._latest) > MAX_OWNERS:
            del self._latest[next(iter(self._latest))]
        return number

    def _accepts(self, owner: str) -> bool:
        """The last position in the queue is reserved for owners without a queued job."""
        has_queued = bool(owner) and any(job.owner == owner for job in self._waiting)
        return len(self._waiting) + has_queued < self._max_waiting

    def _jobs(self) -> Iterator[Job[L]]:
        yield from self._active
        yield from self._waiting

    def num_ahead(self, job: Job[L]) -> int:
        """Return how many jobs must end before the first turn of this one."""
        if job in self._waiting:
            return 1 + self._waiting.index(job)
        return len(self._blocking(job)) if job is self._first_exclusive() else 0

    def is_held_up(self, job: Job[L]) -> bool:
        """Whether the job is active but another one uses the device exclusively."""
        return (
            job in self._active
            and job is not self._first_exclusive()
            and job not in self._eligible()
        )

    def next_turn(self, now: float) -> DeviceTurn[L] | None:
        ready = [job for job in self._eligible() if self._ready_at(job) <= now]
        if not ready:
            return None
        self._num_turns += 1
        first = min(ready, key=lambda job: job.last_turn)
        self._begun = max(self._begun, first.number)
        if first.is_shared:
            return self._shared_turn([job for job in ready if job.is_shared])
        first.last_turn = self._num_turns
        return DeviceTurn("alone", (first.next_lane(),))

    def _shared_turn(self, jobs: list[Job[L]]) -> DeviceTurn[L]:
        """Alternate between chunks of prompts and forward passes, so that neither waits long."""
        for job in jobs:
            job.last_turn = self._num_turns
            self._begun = max(self._begun, job.number)
        decoding = tuple(job.lanes[0] for job in jobs if job.lanes[0].is_read)
        reading = [job.lanes[0] for job in jobs if not job.lanes[0].is_read]
        self._has_read = bool(reading) and not (decoding and self._has_read)
        if self._has_read:
            return DeviceTurn("read", (reading[0],), is_waited_for=bool(decoding))
        return DeviceTurn("step", decoding, is_waited_for=bool(reading))

    def is_hurried(self, job: Job[L]) -> bool:
        return bool(job.pace and self._waiting) and job in self._active

    def _is_slow(self, job: Job[L]) -> bool:
        return bool(job.pace) and not self._waiting

    def _ready_at(self, job: Job[L]) -> float:
        return -math.inf if self._waiting else job.ready_at

    def _first_exclusive(self) -> Job[L] | None:
        return next(
            (job for job in self._active if not (job.is_shared or self._is_slow(job))), None
        )

    def _blocking(self, exclusive: Job[L] | None) -> list[Job[L]]:
        """Return the jobs that must end before the exclusive job."""
        older = self._active[: self._active.index(exclusive)] if exclusive else []
        return [job for job in older if job.is_shared and not self._is_slow(job)]

    def _eligible(self) -> list[Job[L]]:
        """Include jobs in a pause of slow motion."""
        exclusive = self._first_exclusive()
        if exclusive is None:
            return self._active
        return (self._blocking(exclusive) or [exclusive]) + [
            job for job in self._active if self._is_slow(job)
        ]

    def next_wake(self) -> float:
        rests = (self._ready_at(job) for job in self._eligible())
        return min((*rests, self.next_deadline()))

    def next_deadline(self) -> float:
        return min((lane.deadline for lane in self.lanes()), default=math.inf)

    def lanes(self) -> Iterator[L]:
        """Yield every unfinished lane, active ones first."""
        for job in self._jobs():
            yield from (lane for lane in job.lanes if not lane.is_finished)

    def finish(self, job: Job[L], lane: L) -> None:
        """When its job is finished, the next queued job becomes active."""
        lane.is_finished = True
        if not job.is_finished:
            return
        if job in self._active:
            self._active.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)
        while self._waiting and len(self._active) < self.max_active:
            self._serve(self._waiting.pop(0))

    def _serve(self, job: Job[L]) -> None:
        job.last_turn = self._num_turns  # Otherwise a new job would always be next.
        insort(self._active, job, key=_number)


def _number(job: Job[L]) -> int:
    return job.number
