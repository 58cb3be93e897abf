"""How many tokens per second do requests get that share forwards, against one at a time?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.load.document import Section, told
from mars_runtime.lab.load.parts.base import Bench, Part
from mars_runtime.statistics import median
from mars_runtime.traffic.controller import Bounds
from mars_runtime.traffic.figures import figures_of
from mars_runtime.traffic.ways import AR, LOSSLESS, ways_of

ROUNDS = 5


class Throughput(Part):
    """The same requests, all there from the start: one at a time, then as many as there are rows,
    in alternating order. Reading of prompts counts."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._ways = [ways_of(Bounds())[name] for name in (AR, LOSSLESS)]
        self._rates: dict[str, list[dict[int, float]]] = defaultdict(list)

    def measure(self) -> Iterator[str]:
        """A round of both ways is a pair each."""
        order = self._bench.order
        asks = self._bench.asks(order.num_prompts, order.seed)
        for turn in range(ROUNDS):
            for way in self._ways:
                rates = {}
                for places in (1, order.rows) if turn % 2 else (order.rows, 1):
                    found = self._bench.at_once(way, asks, places)
                    rates[places] = figures_of(found.records, found.now).tokens_per_second
                self._rates[way.title].append(rates)
                yield f"{way.title}: {rates[1]:.0f} and {rates[order.rows]:.0f} tokens/s"

    def section(self) -> Section | None:
        """Medians of the rounds, and of their ratios."""
        rows = self._bench.order.rows
        if not self._rates or rows == 1:
            return None
        lines, data = [], {}
        for title, rounds in self._rates.items():
            alone, shared = (median([each[places] for each in rounds]) for places in (1, rows))
            times = median([each[rows] / each[1] for each in rounds])
            lines.append((title, told(alone, form=".1f"), told(shared, form=".1f"), told(times)))
            data[title] = {"rounds": rounds, "times": times.value}
        columns = ("way", "one at a time", f"{rows} at once", "times")
        title = "Tokens per second, reading of prompts included, medians of the rounds"
        return Section("throughput", (), Table(title, columns, tuple(lines)), data)
