"""Simulation of a day of traffic on several machines, from costs measured on one.

No model is run: the results are computed, and are labelled as a simulation. A machine serves up to
``places`` requests at once, all at the same pace, which falls with their number. Requests without a
slot wait in one queue for all machines. Pure and deterministic for a given seed.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.statistics import percentile
from mars_runtime.traffic.figures import Record

HOURS = 24
QUIET_HOUR, BUSY_HOUR, QUIET_SHARE = 4, 16, 0.15
"""The day's traffic is a cosine with its minimum at the quiet hour: this share of the busiest
hour's traffic.
"""
MEAN_SHARE = 0.575
"""Mean traffic of the day as a share of the busiest hour's."""
BUSIEST = 3.0
"""Traffic of the busiest hour as a multiple of one machine's capacity."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs of one machine.

    alone, full: seconds of a forward with one request and with ``places`` requests, including
    prefill and everything else. forwards: numbers of forwards of measured requests, to sample from.
    """

    alone: float
    full: float
    places: int
    forwards: tuple[int, ...]

    def pace(self, num_requests: int) -> float:
        """Return the seconds of a forward with this many requests, linear between the two measured
        values.
        """
        if self.places == 1:
            return self.alone
        share = (num_requests - 1) / (self.places - 1)
        return self.alone + share * (self.full - self.alone)

    @property
    def capacity(self) -> float:
        """Requests per second of a machine that is always full."""
        mean = sum(self.forwards) / len(self.forwards)
        return self.places / (mean * self.full)


def costs_of(alone: Sequence[Record], full: Sequence[Record], places: int) -> Costs | None:
    """Return the costs from two closed loads, one request at a time and ``places`` at once; None if
    one of them answered nothing.
    """
    paces = [_seconds_per_forward(alone), _seconds_per_forward(full)]
    forwards = [record.num_forwards for record in full if record.state == "done"]
    if not forwards or None in paces:
        return None
    one, each = (pace or 0.0 for pace in paces)
    return Costs(one, each * places, places, tuple(forwards))


def _seconds_per_forward(records: Sequence[Record]) -> float | None:
    """Return the seconds per forward and row while all slots are in use.

    Slots stay empty after the last admission, so only requests that ended before it count, if there
    are any.
    """
    done = [record for record in records if record.state == "done"]
    last = max((record.admitted or 0.0 for record in done), default=0.0)
    counted = [record for record in done if (record.ended or 0.0) <= last] or done
    num_forwards = sum(record.num_forwards for record in counted)
    if not num_forwards:
        return None
    began = min(record.arrived for record in counted)
    return (max(record.ended or 0.0 for record in counted) - began) / num_forwards


@dataclass(frozen=True, slots=True)
class Fleet:
    """Percentiles of the day's latency with ``num_machines``: seconds from arrival to the whole
    answer.
    """

    num_machines: int
    p50: float
    p99: float


def hour_seconds(busiest: float, num_requests: int) -> float:
    """Return the simulated length of an hour in seconds, so that the day has at most about
    ``num_requests``.
    """
    return min(3600.0, num_requests / (HOURS * MEAN_SHARE * busiest))


def day_arrivals(busiest: float, hour_seconds: float, seed: int) -> tuple[float, ...]:
    """Return the arrivals of a day whose hours last ``hour_seconds``.

    A Poisson process with a rate that follows the day, at most ``busiest`` per second (thinned:
    Lewis and Shedler 1979).
    """
    rng, found, now = random.Random(f"day:{seed}"), [], 0.0
    while (now := now + rng.expovariate(busiest)) < HOURS * hour_seconds:
        if rng.random() < day_share(now / hour_seconds):
            found.append(now)
    return tuple(found)


def day_share(hour: float) -> float:
    """Return the traffic of an hour as a share of the busiest hour's."""
    swing = (1 - math.cos(2 * math.pi * (hour - QUIET_HOUR) / HOURS)) / 2
    return QUIET_SHARE + (1 - QUIET_SHARE) * swing


def fleets(costs: Costs, arrivals: Sequence[float], most: int, seed: int = 0) -> tuple[Fleet, ...]:
    """Simulate the same day on 1 to ``most`` machines. Each request has the same number of forwards
    on all of them.
    """
    rng = random.Random(f"forwards:{seed}")
    work = [rng.choice(costs.forwards) for _ in arrivals]
    found = []
    for num_machines in range(1, most + 1):
        seconds = simulate(costs, arrivals, work, num_machines)
        found.append(Fleet(num_machines, percentile(seconds, 50), percentile(seconds, 99)))
    return tuple(found)


def enough(found: Sequence[Fleet], seconds: float) -> int | None:
    """Return the smallest number of machines whose p99 is within ``seconds``; None if there is
    none.
    """
    return next((fleet.num_machines for fleet in found if fleet.p99 <= seconds), None)


def simulate(
    costs: Costs, arrivals: Sequence[float], work: Sequence[float], num_machines: int
) -> list[float]:
    """Return the seconds from arrival to end of each request. ``work``: its number of forwards."""
    machines = [_Machine(costs) for _ in range(num_machines)]
    queue: deque[int] = deque()
    ends = [0.0] * len(arrivals)
    coming = 0
    while True:
        machine = min(machines, key=_next_end)
        if coming < len(arrivals) and arrivals[coming] <= machine.next_end:
            now = arrivals[coming]
            queue.append(coming)
            coming += 1
            machine = min(machines, key=len)
        elif machine.next_end < math.inf:
            now = machine.next_end
            ends[machine.end()] = now
        else:
            return [end - arrived for end, arrived in zip(ends, arrivals, strict=True)]
        if queue and len(machine) < costs.places:
            number = queue.popleft()
            machine.begin(number, work[number], now)


class _Machine:
    """A machine and the requests that share it.

    All requests advance at the same pace, so one count of forwards is enough, and the next to end
    is the one with the fewest forwards left.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._running: list[tuple[float, int]] = []  # (forwards at its end, its number)
        self._done, self._since = 0.0, 0.0  # count of forwards, and the time of that count
        self.next_end = math.inf

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, number: int, work: float, now: float) -> None:
        self._advance(now)
        heapq.heappush(self._running, (self._done + work, number))
        self._look()

    def end(self) -> int:
        """Remove the request that ends at ``next_end`` and return its number."""
        self._advance(self.next_end)
        _, number = heapq.heappop(self._running)
        self._look()
        return number

    def _advance(self, now: float) -> None:
        if self._running:
            self._done += (now - self._since) / self._costs.pace(len(self._running))
        self._since = now

    def _look(self) -> None:
        if not self._running:
            self.next_end = math.inf
            return
        left = max(0.0, self._running[0][0] - self._done)
        self.next_end = self._since + left * self._costs.pace(len(self._running))


def _next_end(machine: _Machine) -> float:
    return machine.next_end
