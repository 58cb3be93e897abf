"""Whose turn it is: pure bookkeeping, tested alone. Knows no thread, model, tensor or time of day.

A job is what is served as one. A shared job is a single run: all that are ready take part in the
same forward, and in between one prompt is read a part at a time. Any other job (the lanes of a
race, a solo run) has every forward to itself; inside a race the lane whose own clock is behind is
next, so the clocks advance together. Rules that leave nobody behind:

- Jobs are served in order of arrival, ``max_active`` at a time; those ready take turns, whoever was
  served longest ago first.
- Among owners that order is fair: the n-th job of one comes no sooner than the n-th of another
  (start-time fair queuing, Goyal, Vin and Cheng 1997, each job counting as one), and no owner takes
  all of the waiting line. So a newcomer waits for what has begun, whatever another asks.
- After a forward of s seconds a job of pace N rests N * s seconds, in which others use the device.
- Nobody rests while others wait for a place: slow motion gives way, and comes back.
- A job alone at full speed never rests, so it has the device to its end, but for the forwards of
  jobs in slow motion. It begins when the shared jobs at full speed that came before it are over,
  and whoever came later at full speed waits for it: a stream of one kind never starves the other.

Times are seconds on one monotonic clock that the caller reads.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

MAX_OWNERS = 1000  # that are remembered beyond their jobs
Kind = Literal["alone", "read", "step"]
"""What to do in a turn: the next event of a lane alone on the device, read a part of a prompt, one
forward of several lanes."""


class FullError(Exception):
    """No job can be taken: the waiting line is full, or has no place left for this owner."""


class Lane:
    """One run of a job. ``clock``: its own device seconds, without any wait; ``is_read``: its
    prompt is (shared jobs only)."""

    def __init__(self, deadline: float = math.inf) -> None:
        self.clock = 0.0
        self.deadline = deadline
        self.is_read = False
        self.is_finished = False


L = TypeVar("L", bound=Lane)


class Job(Generic[L]):
    """Lanes that are served as one, at one pace; a shared one has a single lane. ``owner``: who
    asks; all that have none count as one."""

    def __init__(
        self, lanes: Sequence[L], pace: float = 0.0, is_shared: bool = False, owner: str = ""
    ) -> None:
        assert lanes, "a job has a lane"
        assert len(lanes) == 1 or not is_shared, "lanes of a race share no forward"
        self.lanes = tuple(lanes)
        self.pace = pace
        self.is_shared = is_shared
        self.owner = owner
        self.number = 0  # the scheduler's: its place in the order that is fair among owners
        self.last_turn = 0
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


@dataclass(frozen=True, slots=True)
class Turn(Generic[L]):
    """What the device does next, for whom. is_waited_for: others are ready to decode meanwhile."""

    kind: Kind
    lanes: tuple[L, ...]
    is_waited_for: bool = False


class Scheduler(Generic[L]):
    """Jobs being served, ``max_active`` at a time, and a line of ``max_waiting`` behind them."""

    def __init__(self, max_active: int, max_waiting: int) -> None:
        assert max_active >= 1, "room for a job"
        assert max_waiting >= 0, "a line has no negative length"
        self.max_active = max_active
        self._max_waiting = max_waiting
        self._active: list[Job[L]] = []  # both by number, equal ones in order of arrival
        self._waiting: list[Job[L]] = []
        self._begun = 0  # the highest number that has had a turn
        self._latest: dict[str, int] = {}  # owner -> number of its latest job
        self._num_turns = 0
        self._has_read = False

    def __len__(self) -> int:
        return len(self._active) + len(self._waiting)

    @property
    def num_active(self) -> int:
        """Jobs that take turns."""
        return len(self._active)

    @property
    def num_waiting(self) -> int:
        """Jobs in line behind them."""
        return len(self._waiting)

    def add(self, job: Job[L]) -> None:
        """Serve the job, or let it wait. Raises FullError."""
        if len(self._active) >= self.max_active and not self._has_place(job.owner):
            raise FullError
        job.number = self._next_number(job.owner)
        if len(self._active) < self.max_active:
            self._serve(job)
        else:
            insort(self._waiting, job, key=_number)

    def _next_number(self, owner: str) -> int:
        """Behind the owner's earlier jobs, over or not, and behind all that have begun."""
        if not len(self):
            self._latest.clear()
        number = max(self._begun, self._latest.pop(owner, -1) + 1)
        self._latest[owner] = number
        if len(self._latest) > MAX_OWNERS:
            del self._latest[next(iter(self._latest))]
        return number

    def _has_place(self, owner: str) -> bool:
        """Whether the line takes another of this owner; its last place is for who has none."""
        has_one = bool(owner) and any(job.owner == owner for job in self._waiting)
        return len(self._waiting) + has_one < self._max_waiting

    def _jobs(self) -> Iterator[Job[L]]:
        yield from self._active
        yield from self._waiting

    def place(self, job: Job[L]) -> int:
        """Jobs that must end before this one gets its first turn; 0 once it is served or over."""
        if job in self._waiting:
            return 1 + self._waiting.index(job)
        return len(self._before(job)) if job is self._lone() else 0

    def is_held_up(self, job: Job[L]) -> bool:
        """Whether the job is served and has to stand by: another has the device alone."""
        return job in self._active and job is not self._lone() and job not in self._eligible()

    def next_turn(self, now: float) -> Turn[L] | None:
        """What to do next, None while everybody rests: the job that was served longest ago and is
        ready, and with a shared one all the other shared ones."""
        ready = [job for job in self._eligible() if self._ready_at(job) <= now]
        if not ready:
            return None
        self._num_turns += 1
        first = min(ready, key=lambda job: job.last_turn)
        self._begun = max(self._begun, first.number)
        if first.is_shared:
            return self._shared_turn([job for job in ready if job.is_shared])
        first.last_turn = self._num_turns
        return Turn("alone", (first.next_lane(),))

    def _shared_turn(self, jobs: list[Job[L]]) -> Turn[L]:
        """Parts of prompts and forwards take turns, so that neither waits for the other."""
        for job in jobs:
            job.last_turn = self._num_turns
            self._begun = max(self._begun, job.number)
        decoding = tuple(job.lanes[0] for job in jobs if job.lanes[0].is_read)
        reading = [job.lanes[0] for job in jobs if not job.lanes[0].is_read]
        self._has_read = bool(reading) and not (decoding and self._has_read)
        if self._has_read:
            return Turn("read", (reading[0],), is_waited_for=bool(decoding))
        return Turn("step", decoding, is_waited_for=bool(reading))

    def is_hurried(self, job: Job[L]) -> bool:
        """Whether its slow motion gives way to those who wait for a place."""
        return bool(job.pace and self._waiting) and job in self._active

    def _is_slow(self, job: Job[L]) -> bool:
        return bool(job.pace) and not self._waiting

    def _ready_at(self, job: Job[L]) -> float:
        return -math.inf if self._waiting else job.ready_at

    def _lone(self) -> Job[L] | None:
        """The first job that asks for the device alone at full speed."""
        return next(
            (one for one in self._active if not (one.is_shared or self._is_slow(one))), None
        )

    def _before(self, lone: Job[L] | None) -> list[Job[L]]:
        """The shared jobs at full speed that ``lone`` waits for."""
        older = self._active[: self._active.index(lone)] if lone else []
        return [job for job in older if job.is_shared and not self._is_slow(job)]

    def _eligible(self) -> list[Job[L]]:
        """The jobs that may use the device, resting or not."""
        lone = self._lone()
        if lone is None:
            return self._active
        return (self._before(lone) or [lone]) + [job for job in self._active if self._is_slow(job)]

    def next_wake(self) -> float:
        """When a rest or a deadline is over next; infinity if nothing is to come."""
        rests = (self._ready_at(job) for job in self._eligible())
        return min((*rests, self.next_deadline()))

    def next_deadline(self) -> float:
        """The earliest deadline of an unfinished lane, served or waiting."""
        return min((lane.deadline for lane in self.lanes()), default=math.inf)

    def lanes(self) -> Iterator[L]:
        """Every unfinished lane, served ones first."""
        for job in self._jobs():
            yield from (lane for lane in job.lanes if not lane.is_finished)

    def finish(self, job: Job[L], lane: L) -> None:
        """The lane is over; with its last one the job makes room for the next in line."""
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
        job.last_turn = self._num_turns  # or newcomers would always be next
        insort(self._active, job, key=_number)


def _number(job: Job[L]) -> int:
    return job.number
