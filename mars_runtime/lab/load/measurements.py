"""What the ``load`` command measures, a part for each question.

Throughput: how many tokens per second do requests get that share forwards, against one at a time?
FirstToken: what does it cost a newcomer, and save the others, that its prompt is read in short
parts? SecondTurn: what does it save the second turn of a conversation that the first one is kept?
Curve and Follow: where is this machine saturated, and what does a controller of τ make of 80 and
120 % of that? Day: how many such machines would a day of traffic need? That one is answered by a
simulation, and called one.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.backend import READ_ALONE, READ_BESIDE, CheckpointBackend
from mars_runtime.events import Step
from mars_runtime.lab.load.document import Section, told
from mars_runtime.lab.profiling.turns import QUESTIONS, TimedTurn, converse, table_of
from mars_runtime.lab.tables import NONE, Table, share
from mars_runtime.settings import DecodeSettings
from mars_runtime.statistics import median, quantile
from mars_runtime.traffic.controller import AR, FIXED, FOLLOW, LOSSLESS, Bounds, Way, ways_of
from mars_runtime.traffic.drive import Drive, Progress
from mars_runtime.traffic.figures import (
    Point,
    Record,
    agreement,
    closed_rate,
    figures_of,
    is_saturated,
    point_of,
    saturation_of,
    texts_of,
)
from mars_runtime.traffic.simulate import (
    BUSIEST,
    Costs,
    Fleet,
    costs_of,
    day_arrivals,
    fleets,
    hour_seconds,
)
from mars_runtime.traffic.workload import Ask, Workload, asks_of, poisson

if TYPE_CHECKING:
    from mars_runtime.decoders.base import Batch
    from mars_runtime.model.load import Checkpoint

MAX_QUEUE = 100_000
ROUNDS = 5
TRIALS = 9
PROMPT_TOKENS = 320  # of the newcomer
BUSY_TOKENS = 400  # of an answer beside it, which is never waited for
PATIENCE = 60.0
IN_PARTS, AT_ONCE, IDLE = f"in parts of {READ_BESIDE}", "at once", "nobody else"
NUM_TURNS = 2
ANSWER_TOKENS = 192  # at most: as long as a chat model likes to answer
SHARES = (0.4, 0.7, 0.9, 1.1, 1.4)
LOADS = (0.8, 1.2)
COMPARED = (AR, LOSSLESS, FIXED, FOLLOW)
CLOSED = 4  # requests a row, to find where saturation is in the first place
MOST_MACHINES = 6
DAY_REQUESTS = 20_000
"""Requests of the day, about: hours are shortened until it has no more."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked of the command: rows that share forwards, seconds of arrivals of a cell,
    rounds, tokens of an answer at most, prompts of a closed load, the seed of all of them."""

    checkpoint: str
    rows: int
    seconds: float
    rounds: int
    max_new_tokens: int
    num_prompts: int
    seed: int


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a part measures. ``engine`` keeps nothing of earlier texts, so that no way of decoding
    profits from the one before it."""

    options: Options
    checkpoint: Checkpoint
    engine: Engine

    def asks(self, count: int, seed: int, budget: float | None = None) -> tuple[Ask, ...]:
        """Short prompts for the checkpoint."""
        options, tokenizer = self.options, self.checkpoint.tokenizer
        return asks_of(
            options.checkpoint, tokenizer, "short", count, options.max_new_tokens, seed, budget
        )

    def drive(
        self, way: Way, asks: Sequence[Ask], arrivals: Sequence[float], places: int | None = None
    ) -> Progress:
        """One load, to its end."""
        rows = self.options.rows if places is None else places
        return Drive(self.engine, Workload(arrivals, asks, way, rows, MAX_QUEUE)).run()

    def at_once(self, way: Way, asks: Sequence[Ask], places: int) -> Progress:
        """A closed load: all are there from the start, ``places`` are served at a time."""
        return self.drive(way, asks, (0.0,) * len(asks), places)


class Part(ABC):
    """One question. What was measured when it is stopped is kept."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    @abstractmethod
    def measure(self) -> Iterator[str]:
        """Measure bit by bit; yields what was just measured, in words."""

    @abstractmethod
    def section(self) -> Section | None:
        """What is known by now; None as long as that is nothing."""


class Throughput(Part):
    """The same requests, all there from the start: one at a time, then as many as there are rows,
    in alternating order. Reading of prompts counts."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._ways = [ways_of(Bounds())[name] for name in (AR, LOSSLESS)]
        self._rates: dict[str, list[dict[int, float]]] = defaultdict(list)

    def measure(self) -> Iterator[str]:
        """A round of both ways is a pair each."""
        options = self._bench.options
        asks = self._bench.asks(options.num_prompts, options.seed)
        for turn in range(ROUNDS):
            for way in self._ways:
                rates = {}
                for places in (1, options.rows) if turn % 2 else (options.rows, 1):
                    found = self._bench.at_once(way, asks, places)
                    rates[places] = figures_of(found.records, found.now).tokens_per_second
                self._rates[way.title].append(rates)
                yield f"{way.title}: {rates[1]:.0f} and {rates[options.rows]:.0f} tokens/s"

    def section(self) -> Section | None:
        """Medians of the rounds, and of their ratios."""
        rows = self._bench.options.rows
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


class ReadsAtOnce(CheckpointBackend):
    """Reads a prompt in one go, whoever waits: what the engine would be without parts."""

    def batch(self) -> Batch:
        """The same rows, deaf to how much they are to read."""
        return cast("Batch", _Deaf(super().batch()))


class _Deaf:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def read(self, number: int, at_most: int) -> int:
        return self._batch.read(number, READ_ALONE)


class FirstToken(Part):
    """All rows but one decode plain AR; then a long prompt arrives. Seconds of real time from then
    to its first token, and the longest that another row meanwhile waited from token to token."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._first: dict[str, list[float]] = defaultdict(list)
        self._gaps: dict[str, list[float]] = defaultdict(list)

    def measure(self) -> Iterator[str]:
        """Both ways of reading in turn, and the same prompt without company."""
        rows = self._bench.options.rows
        backend = ReadsAtOnce(self._bench.checkpoint, keeps=False)
        with closing(Engine(backend, max_runs=rows)) as deaf:
            deaf.costs()
            for turn in range(TRIALS):
                both = [(IN_PARTS, self._bench.engine), (AT_ONCE, deaf)]
                for name, engine in both if turn % 2 else both[::-1]:
                    self._try(name, engine, rows - 1)
                self._try(IDLE, self._bench.engine, 0)
                yield ", ".join(f"{name} {each[-1]:.3f} s" for name, each in self._first.items())

    def section(self) -> Section | None:
        """Medians, and how many times the seconds of reading at once."""
        if not self._first.get(IN_PARTS) or not self._first.get(AT_ONCE):
            return None
        lines = []
        for name in (AT_ONCE, IN_PARTS, IDLE):
            if not (first := self._first.get(name)):
                continue
            gaps = self._gaps.get(name)
            pairs = zip(first, self._first[AT_ONCE], strict=False)
            times = median([mine / other for mine, other in pairs])
            gap = median(gaps) if gaps else None
            cells = (told(median(first), 1000, ".0f"), told(times), told(gap, 1000, ".0f"))
            lines.append((name, *cells))
        columns = ("the prompt is read", "first token, ms", "times at once", "longest wait, ms")
        rows = self._bench.options.rows - 1
        others = "another decodes" if rows == 1 else f"{rows} others decode"
        title = (
            f"A prompt of {self._length} tokens arrives while {others}: its first "
            "token, and the longest that another waited for its next"
        )
        data = {"first_seconds": dict(self._first), "gap_seconds": dict(self._gaps)}
        return Section("first_token", (), Table(title, columns, tuple(lines)), data)

    @property
    def _length(self) -> int:
        return min(PROMPT_TOKENS, self._bench.engine.capacity // 2)

    def _try(self, name: str, engine: Engine, num_busy: int) -> None:
        """One newcomer among so many."""
        bench, settings = self._bench, DecodeSettings("ar", max_new_tokens=2)
        asks = bench.asks(num_busy + 24, bench.options.seed)
        ids = [token for ask in asks for token in ask.prompt_ids][: self._length]
        most = min(BUSY_TOKENS, engine.capacity // 2)
        long = replace(settings, max_new_tokens=most)
        busy = [engine.submit(Request(ask.prompt_ids, long)) for ask in asks[:num_busy]]
        try:
            for run in busy:
                _await_step(run)
            watch = _Watch(busy)
            began = time.perf_counter()
            _await_step(engine.submit(Request(ids, settings)))
            ended = time.perf_counter()
            self._first[name].append(ended - began)
            if busy:
                self._gaps[name].append(watch.longest(began, ended))
        finally:
            for run in busy:
                run.cancel()
            for run in busy:
                run.wait(PATIENCE)


class _Watch:
    """When the first of these runs wrote, by a thread of its own."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._moments = [time.perf_counter()]
        for run in runs[:1]:
            threading.Thread(target=self._follow, args=(run,), daemon=True).start()

    def _follow(self, run: Run) -> None:
        for event in run:
            if isinstance(event, Step):
                self._moments.append(time.perf_counter())

    def longest(self, began: float, ended: float) -> float:
        """The longest wait from token to token that was not over before ``began``, nor begun after
        ``ended``."""
        moments = [*self._moments, max(ended, self._moments[-1])]
        gaps = [b - a for a, b in pairwise(moments) if b >= began and a <= ended]
        return max(gaps, default=0.0)


def _await_step(run: Run) -> None:
    for event in run:
        if isinstance(event, Step):
            return


class SecondTurn(Part):
    """Conversations of the ``turns`` command, on an engine that keeps what it has read."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._found: list[list[TimedTurn]] = []

    def measure(self) -> Iterator[str]:
        """Every prompt twice: with what is kept, then without."""
        checkpoint = self._bench.checkpoint
        if not checkpoint.model.is_bitwise:
            yield "nothing is kept, because arithmetic is not bitwise"
            return
        settings = ways_of(Bounds())[LOSSLESS].settings
        settings = replace(settings, max_new_tokens=ANSWER_TOKENS)
        with closing(Engine(checkpoint, max_runs=1)) as engine:
            engine.costs()
            for question in QUESTIONS:
                turns = converse(engine, checkpoint.tokenizer, question, NUM_TURNS, settings)
                self._found.append(turns)
                yield f"{1000 * turns[-1].warm:.0f} ms kept, {1000 * turns[-1].cold:.0f} ms not"

    def section(self) -> Section | None:
        """The table of the ``turns`` command, and the ratio of the last turn."""
        if not self._found:
            return None
        ratio = median([turns[-1].warm / turns[-1].cold for turns in self._found])
        sentence = (
            f"The first token of a second turn takes {told(ratio)} of the time that it takes "
            "where nothing is kept."
        )
        data = {
            "ratio": ratio.value,
            "turns": [[[turn.warm, turn.cold] for turn in turns] for turns in self._found],
            "is_equal": all(turn.is_equal for turns in self._found for turn in turns),
        }
        name = self._bench.options.checkpoint
        return Section("second_turn", (sentence,), table_of(name, self._found), data)


class Curve(Part):
    """Poisson arrivals at rising rates, by the fixed threshold, and what is answered of them."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._way = ways_of(Bounds())[FIXED]
        self.points: list[Point] = []

    @property
    def saturation(self) -> float:
        """Requests per second; 0 before it is known."""
        return saturation_of(self.points)

    def measure(self) -> Iterator[str]:
        """A closed load says where to look, each rate is a point."""
        bench, options = self._bench, self._bench.options
        asks = bench.asks(CLOSED * options.rows, options.seed)
        found = bench.at_once(self._way, asks, options.rows)
        near = (
            closed_rate(found.records) or figures_of(found.records, found.now).requests_per_second
        )
        yield f"{near:.2f} requests/s while others wait"
        for part in SHARES:
            arrivals = poisson(part * near, options.seconds, options.seed)
            done = bench.drive(self._way, bench.asks(len(arrivals), options.seed), arrivals)
            point = point_of(done.records, len(arrivals) / options.seconds, options.seconds)
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
            f"({self._way.title}, {self._bench.options.rows} rows)."
        )
        if not is_saturated(self.points):
            sentence += " Nearly all that was offered was answered, so it may be higher."
        title = "Requests per second offered and answered; waits as median and p99"
        data = {"saturation": self.saturation, "points": [asdict(each) for each in self.points]}
        return Section("saturation", (sentence,), Table(title, columns, lines), data)


class Follow(Part):
    """Every way on the same arrivals, below saturation and above it, in turning order."""

    def __init__(self, bench: Bench, curve: Curve) -> None:
        super().__init__(bench)
        self._curve = curve
        self._ways = [ways_of(Bounds())[name] for name in COMPARED]
        self._records: dict[tuple[float, str], list[Record]] = defaultdict(list)
        self._texts: dict[tuple[float, str], list[dict[int, Any]]] = defaultdict(list)
        self._num_decisions: dict[tuple[float, str], int] = defaultdict(int)

    def measure(self) -> Iterator[str]:
        """A cell is one way at one load in one round."""
        options = self._bench.options
        for turn in range(options.rounds):
            for load in LOADS:
                rate, seed = load * self._curve.saturation, options.seed + turn
                arrivals = poisson(rate, options.seconds, seed) if rate else ()
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


class Day(Part):
    """Two closed loads say what forwards cost here; the rest is computed."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._costs: Costs | None = None
        self._fleets: tuple[Fleet, ...] = ()

    def measure(self) -> Iterator[str]:
        """The costs, then the day."""
        bench, options = self._bench, self._bench.options
        way = ways_of(Bounds())[FIXED]
        asks = bench.asks(4 * options.rows, options.seed)
        alone = bench.at_once(way, asks[: options.rows], 1).records
        full = bench.at_once(way, asks, options.rows).records
        self._costs = costs_of(alone, full, options.rows)
        if self._costs is None:
            return
        busiest = BUSIEST * self._costs.capacity
        arrivals = day_arrivals(busiest, hour_seconds(busiest, DAY_REQUESTS), options.seed)
        self._fleets = fleets(self._costs, arrivals, MOST_MACHINES, options.seed)
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
