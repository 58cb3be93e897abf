"""Where is this machine saturated, and what does a controller of τ make of 80 and 120 % of that?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mars_runtime.lab.evaluation.tables import NONE, Table, share
from mars_runtime.lab.load.document import Section, told
from mars_runtime.lab.load.parts.base import Bench, Part
from mars_runtime.statistics import quantile
from mars_runtime.traffic.arrivals import poisson
from mars_runtime.traffic.controller import Bounds
from mars_runtime.traffic.curve import Point, closed_rate, is_saturated, point_of, saturation_of
from mars_runtime.traffic.figures import agreement, figures_of, texts_of
from mars_runtime.traffic.records import Record
from mars_runtime.traffic.ways import AR, FIXED, FOLLOW, LOSSLESS, ways_of

SHARES = (0.4, 0.7, 0.9, 1.1, 1.4)
LOADS = (0.8, 1.2)
COMPARED = (AR, LOSSLESS, FIXED, FOLLOW)
CLOSED = 4  # requests a row, to find where saturation is in the first place


class Curve(Part):
    """Poisson arrivals at rising rates, by the fixed threshold, and what is answered of them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._way = ways_of(Bounds())[FIXED]
        self.points: list[Point] = []

    @property
    def saturation(self) -> float:
        """Requests per second; 0 before it is known."""
        return saturation_of(self.points)

    def measure(self) -> Iterator[str]:
        """A closed load says where to look, each rate is a point."""
        bench, order = self._bench, self._bench.order
        asks = bench.asks(CLOSED * order.rows, order.seed)
        found = bench.at_once(self._way, asks, order.rows)
        near = (
            closed_rate(found.records) or figures_of(found.records, found.now).requests_per_second
        )
        yield f"{near:.2f} requests/s while others wait"
        for part in SHARES:
            arrivals = poisson(part * near, order.seconds, order.seed)
            done = bench.drive(self._way, bench.asks(len(arrivals), order.seed), arrivals)
            point = point_of(done.records, len(arrivals) / order.seconds, order.seconds)
            self.points.append(point)
            yield f"{point.offered:.2f} requests/s offered, {point.answered:.2f} answered"

    def section(self) -> Section | None:
        """A line a rate."""
        if not self.points:
            return None
        lines = tuple(
            (
                f"{point.offered:.2f}",
                f"{point.answered:.2f}",
                *(_spread(each) for each in (point.ttft, point.latency)),
            )
            for point in self.points
        )
        columns = ("offered /s", "answered /s", "first token, s", "whole answer, s")
        sentence = (
            f"Saturation: at most {self.saturation:.2f} requests per second were answered "
            f"({self._way.title}, {self._bench.order.rows} rows)."
        )
        if not is_saturated(self.points):
            sentence += " Nearly all that was offered was answered, so it may be higher."
        title = "Requests per second offered and answered; waits as median and p99"
        data = {"saturation": self.saturation, "points": [asdict(each) for each in self.points]}
        return Section("saturation", (sentence,), Table(title, columns, lines), data)


class Follow(Part):
    """Every way on the same arrivals, below saturation and above it, in turning order."""

    def __init__(self, bench: Bench, curve: Curve) -> None:
        self._bench = bench
        self._curve = curve
        self._ways = [ways_of(Bounds())[name] for name in COMPARED]
        self._records: dict[tuple[float, str], list[Record]] = defaultdict(list)
        self._texts: dict[tuple[float, str], list[dict[int, Any]]] = defaultdict(list)
        self._num_decisions: dict[tuple[float, str], int] = defaultdict(int)

    def measure(self) -> Iterator[str]:
        """A cell is one way at one load in one round."""
        order = self._bench.order
        for turn in range(order.rounds):
            for load in LOADS:
                rate, seed = load * self._curve.saturation, order.seed + turn
                arrivals = poisson(rate, order.seconds, seed) if rate else ()
                asks = self._bench.asks(max(1, len(arrivals)), seed)[: len(arrivals)]
                for way in self._ways[turn % 2 :] + self._ways[: turn % 2]:
                    found = self._bench.drive(way, asks, arrivals)
                    key = load, way.name
                    self._records[key] += found.records
                    self._texts[key].append(texts_of(found.records))
                    self._num_decisions[key] += max(0, len(found.decisions) - 1)
                    yield f"{100 * load:.0f} %, {way.title}: {len(found.records)} requests"

    def section(self) -> Section | None:
        """A line a way and load, over all rounds."""
        lines, cells = [], []
        for load in LOADS:
            for way in self._ways:
                if not (records := self._records.get((load, way.name))):
                    continue
                cell = self._cell(load, way.name, records)
                cells.append({"load": load, "way": way.title, **cell})
                lines.append((f"{100 * load:.0f} % · {way.title}", *_cells(cell)))
        if not lines:
            return None
        columns = (
            "load and way", "requests", "first token p99, s", "answer p50, s", "answer p99, s",
            "TPF", "as AR", "decisions",
        )  # fmt: skip
        title = "The same arrivals by each way, with 95 % intervals over the requests"
        told = f"Loads are shares of saturation, {self._curve.saturation:.2f} requests per second."
        data = {"saturation": self._curve.saturation, "cells": cells}
        return Section("controller", (told,), Table(title, columns, tuple(lines)), data)

    def _cell(self, load: float, way: str, records: Sequence[Record]) -> dict[str, Any]:
        first = [each.ttft for each in records if each.ttft is not None]
        whole = [each.latency for each in records if each.latency is not None]
        rounds = zip(self._texts[load, way], self._texts[load, AR], strict=False)
        agreed = [found for own, ar in rounds if (found := agreement(own, ar)) is not None]
        return {
            "num_requests": len(records),
            "ttft_p99": quantile(first, 99) if first else None,
            "latency_p50": quantile(whole, 50) if whole else None,
            "latency_p99": quantile(whole, 99) if whole else None,
            "tpf": figures_of(records, 0.0).tpf,
            "agreement": sum(agreed) / len(agreed) if agreed else None,
            "num_decisions": self._num_decisions[load, way],
        }


def _cells(cell: Mapping[str, Any]) -> tuple[str, ...]:
    tpf = cell["tpf"]
    return (
        str(cell["num_requests"]),
        *(told(cell[name]) for name in ("ttft_p99", "latency_p50", "latency_p99")),
        NONE if tpf is None else f"{tpf:.2f}",
        share(cell["agreement"]),
        str(cell["num_decisions"]),
    )


def _spread(found: Any) -> str:
    return NONE if found is None else f"{found.p50:.2f} · {found.p99:.2f}"
