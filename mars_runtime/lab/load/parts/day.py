"""How many such machines would a day of traffic need? Answered by a simulation, and called one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.load.document import Section
from mars_runtime.lab.load.parts.base import Bench, Part
from mars_runtime.traffic.controller import Bounds
from mars_runtime.traffic.curve import costs_of
from mars_runtime.traffic.simulate import (
    BUSIEST,
    Costs,
    Fleet,
    day_arrivals,
    fleets,
    hour_seconds,
)
from mars_runtime.traffic.ways import FIXED, ways_of

MOST_MACHINES = 6
DAY_REQUESTS = 20_000
"""Requests of the day, about: hours are shortened until it has no more."""


class Day(Part):
    """Two closed loads say what forwards cost here; the rest is computed."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._costs: Costs | None = None
        self._fleets: tuple[Fleet, ...] = ()

    def measure(self) -> Iterator[str]:
        """The costs, then the day."""
        bench, order = self._bench, self._bench.order
        way = ways_of(Bounds())[FIXED]
        asks = bench.asks(4 * order.rows, order.seed)
        alone = bench.at_once(way, asks[: order.rows], 1).records
        full = bench.at_once(way, asks, order.rows).records
        self._costs = costs_of(alone, full, order.rows)
        if self._costs is None:
            return
        busiest = BUSIEST * self._costs.capacity
        arrivals = day_arrivals(busiest, hour_seconds(busiest, DAY_REQUESTS), order.seed)
        self._fleets = fleets(self._costs, arrivals, MOST_MACHINES, order.seed)
        yield f"{len(arrivals)} simulated requests"

    def section(self) -> Section | None:
        """A line for each number of machines."""
        costs = self._costs
        if costs is None or not self._fleets:
            return None
        busiest = BUSIEST * costs.capacity
        hour = hour_seconds(busiest, DAY_REQUESTS)
        told = (
            f"A simulation: nobody served this day. Its busiest hour brings {busiest:.1f} requests "
            f"per second, {BUSIEST:g} times what one machine answers; hours are shortened to "
            f"{hour:.0f} s, so where machines are too few a real day would wait "
            "longer still. Seconds of a forward were measured just before: "
            f"{1000 * costs.alone:.1f} ms alone, {1000 * costs.full:.1f} ms with {costs.places} "
            "rows, reading of prompts included."
        )
        lines = tuple(
            (str(one.num_machines), f"{one.p50:.2f}", f"{one.p99:.2f}") for one in self._fleets
        )
        table = Table("Simulated: seconds to the whole answer", ("machines", "p50", "p99"), lines)
        data = {"costs": asdict(costs), "fleets": [asdict(one) for one in self._fleets]}
        return Section("simulated_day", (told,), table, data)
