"""Scheduler: decides which job uses the device next. Pure bookkeeping, tested separately.

It uses no thread, model, tensor or clock. A job is the unit of scheduling. A shared job is a single
run: all ready shared jobs take part in the same forward, and between forwards one prompt is
prefilled in chunks. Any other job (the lanes of a race, a solo run) has every forward to itself.
Within a race the lane with the smallest clock is next, so the clocks advance together. Rules
against starvation:

- Jobs are served in order of arrival, ``max_active`` at a time. Ready jobs take turns, the least
  recently served first.
- The order is fair among owners: the n-th job of one owner is not served before the n-th of another
  (start-time fair queuing, Goyal, Vin and Cheng 1997, each job with weight one), and no owner can
  fill the queue. So a new owner waits only for jobs that have begun, however many another submits.
- After a forward of s seconds a job of pace N rests for N * s seconds, in which others use the
  device.
- No job rests while the queue is not empty: slow motion is suspended.
- An exclusive job at full speed never rests, so it keeps the device to its end, except for forwards
  of jobs in slow motion. It begins when the earlier shared jobs at full speed have ended, and later
  jobs at full speed wait for it, so a stream of one kind cannot starve the other.

Times are seconds on one monotonic clock that the caller reads.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

MAX_OWNERS = 1000  # maximum number of owners remembered after their jobs have ended
Kind = Literal["alone", "read", "step"]
"""What to do in a turn.

``alone``: the next event of a lane with the device to itself; ``read``: prefill one chunk of a
prompt; ``step``: one forward of several lanes.
"""


class FullError(Exception):
    """The job is rejected: the queue is full, or has no place left for this owner."""


class Lane:
    """One run of a job.

    clock: its device seconds, without waiting. is_read: whether its prompt is prefilled (shared
    jobs only).
    """

    def __init__(self, deadline: float = math.inf) -> None:
        self.clock = 0.0
        self.deadline = deadline
        self.is_read = False
        self.is_finished = False


L = TypeVar("L", bound=Lane)


class Job(Generic[L]):
    """Lanes that are scheduled together, at one pace; a shared job has a single lane.

    owner: the client that submitted it; all jobs without an owner count as one owner's.
    """

    def __init__(
        self, lanes: Sequence[L], pace: float = 0.0, is_shared: bool = False, owner: str = ""
    ) -> None:
        assert lanes, "a job has a lane"
        assert len(lanes) == 1 or not is_shared, "lanes of a race share no forward"
        self.lanes = tuple(lanes)
        self.pace = pace
        self.is_shared = is_shared
        self.owner = owner
        self.number = 0  # set by the scheduler: its place in the fair order
        self.last_turn = 0
        self._rests_since = -math.inf
        self._last_seconds = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether every lane has finished."""
        return all(lane.is_finished for lane in self.lanes)

    @property
    def ready_at(self) -> float:
        """When the rest ends; a change of pace takes effect immediately."""
        return self._rests_since + self.pace * self._last_seconds

    def next_lane(self) -> L:
        """Return the unfinished lane with the smallest clock, the first one of equals."""
        return min((lane for lane in self.lanes if not lane.is_finished), key=lambda a: a.clock)

    def spend(self, lane: L, seconds: float, now: float, has_rest: bool = True) -> None:
        """Record a forward of ``lane`` that took ``seconds`` and ended at ``now``.

        Without ``has_rest`` the job does not rest: there is nothing to watch after a prefill.
        """
        lane.clock += seconds
        self._rests_since, self._last_seconds = now, seconds if has_rest else 0.0


@dataclass(frozen=True, slots=True)
class DeviceTurn(Generic[L]):
    """What the device does next, and for which lanes. is_waited_for: whether other lanes are
    ready."""

    kind: Kind
    lanes: tuple[L, ...]
    is_waited_for: bool = False


class Scheduler(Generic[L]):
    """Serves up to ``max_active`` jobs at a time and queues up to ``max_waiting`` more."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        assert max_active >= 1, "room for a job"
        assert max_waiting >= 0, "a line has no negative length"
        self.max_active = max_active
        self._max_waiting = max_waiting
        self._active: list[Job[L]] = []  # both lists by number, equal ones in order of arrival
        self._waiting: list[Job[L]] = []
        self._begun = 0  # the highest number of a job that has had a turn
        self._latest: dict[str, int] = {}  # owner -> number of its latest job
        self._num_turns = 0
        self._has_read = False

    def __len__(self) -> int:
        return len(self._active) + len(self._waiting)

    @property
    def num_active(self) -> int:
        """Number of jobs that take turns."""
        return len(self._active)

    @property
    def num_waiting(self) -> int:
        """Number of queued jobs."""
        return len(self._waiting)

    def add(self, job: Job[L]) -> None:
        """Serve or enqueue the job. Raises FullError."""
        if len(self._active) >= self.max_active and not self._has_place(job.owner):
            raise FullError
        job.number = self._next_number(job.owner)
        if len(self._active) < self.max_active:
            self._serve(job)
        else:
            insort(self._waiting, job, key=_number)

    def _next_number(self, owner: str) -> int:
        """Return a number after the owner's earlier jobs, ended or not, and after all jobs that
        began."""
        if not len(self):
            self._latest.clear()
        number = max(self._begun, self._latest.pop(owner, -1) + 1)
        self._latest[owner] = number
        if len(self._latest) > MAX_OWNERS:
            del self._latest[next(iter(self._latest))]
        return number

    def _has_place(self, owner: str) -> bool:
        """Whether the queue accepts a job of this owner. The queue's last place is for owners
        without a job."""
        has_one = bool(owner) and any(job.owner == owner for job in self._waiting)
        return len(self._waiting) + has_one < self._max_waiting

    def _jobs(self) -> Iterator[Job[L]]:
        yield from self._active
        yield from self._waiting

    def place(self, job: Job[L]) -> int:
        """Return how many jobs must end before this one's first turn; 0 once it is served or
        over."""
        if job in self._waiting:
            return 1 + self._waiting.index(job)
        return len(self._before(job)) if job is self._lone() else 0

    def is_held_up(self, job: Job[L]) -> bool:
        """Return whether the job is active but has to wait while another one has the device
        alone."""
        return job in self._active and job is not self._lone() and job not in self._eligible()

    def next_turn(self, now: float) -> DeviceTurn[L] | None:
        """Return what to do next, or None while every job rests.

        The least recently served ready job is next; if it is shared, all other ready shared jobs
        join.
        """
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
        """Alternate between chunks of prompts and forwards, so that neither waits for the other."""
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
        """Return whether the job's slow motion is suspended because other jobs are queued."""
        return bool(job.pace and self._waiting) and job in self._active

    def _is_slow(self, job: Job[L]) -> bool:
        return bool(job.pace) and not self._waiting

    def _ready_at(self, job: Job[L]) -> float:
        return -math.inf if self._waiting else job.ready_at

    def _lone(self) -> Job[L] | None:
        """Return the first job that needs the device alone at full speed."""
        return next(
            (job for job in self._active if not (job.is_shared or self._is_slow(job))), None
        )

    def _before(self, lone: Job[L] | None) -> list[Job[L]]:
        """Return the shared jobs at full speed that ``lone`` waits for."""
        older = self._active[: self._active.index(lone)] if lone else []
        return [job for job in older if job.is_shared and not self._is_slow(job)]

    def _eligible(self) -> list[Job[L]]:
        """Return the jobs that may use the device, resting or not."""
        lone = self._lone()
        if lone is None:
            return self._active
        return (self._before(lone) or [lone]) + [job for job in self._active if self._is_slow(job)]

    def next_wake(self) -> float:
        """Return when the next rest or deadline ends; infinity if there is none."""
        rests = (self._ready_at(job) for job in self._eligible())
        return min((*rests, self.next_deadline()))

    def next_deadline(self) -> float:
        """Return the earliest deadline of an unfinished lane, active or queued."""
        return min((lane.deadline for lane in self.lanes()), default=math.inf)

    def lanes(self) -> Iterator[L]:
        """Yield every unfinished lane, active ones first."""
        for job in self._jobs():
            yield from (lane for lane in job.lanes if not lane.is_finished)

    def finish(self, job: Job[L], lane: L) -> None:
        """Finish the lane; when its job is finished, the next queued job becomes active."""
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
        job.last_turn = self._num_turns  # otherwise new jobs would always be next
        insort(self._active, job, key=_number)


def _number(job: Job[L]) -> int:
    return job.number
