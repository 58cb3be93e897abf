"""The load that a visitor is running: each way in turn on the same arrivals, and what is told.

The first line of a value (``components/race_value.py``) names the ways; further lines are ticks of
a load that goes on, decisions of the controller, points of a curve, and at the end agreement with
AR and a simulated day. The requests of a load leave a place of the engine to other visitors. Knows
no gradio, drawing or model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from functools import partial

from app.controls import RefusalError
from app.feed import Feed
from app.load.lines import about, agreement_lines, day_line, decision_line, tick_line
from app.load.order import CURVE, SEED, Loading, LoadOrder
from app.serving.loads import Served
from app.stream import TabRun, Wait
from mars_runtime.lab.load.controller import Bounds
from mars_runtime.lab.load.curve import costs_of, point_of
from mars_runtime.lab.load.drive import Drive, Load, Progress
from mars_runtime.lab.load.figures import figures_of
from mars_runtime.lab.load.mix import Ask, asks_of
from mars_runtime.lab.load.records import Record
from mars_runtime.lab.load.ways import AR, Way, ways_of

TICK_SECONDS = 0.5
DRAIN_SECONDS = 20.0
ELSEWHERE = "The Load lab runs only where the page runs: this page's model is on another machine."
"""After the last arrival: what goes on then is cut, so that no load drags on."""
NUM_SAMPLED = 8
"""Requests that plain AR answers afterwards, where it was not among the ways."""
Records = tuple[Record, ...]


class LoadRun(TabRun):
    """All loads of an order, one after the other."""

    def __init__(self, order: LoadOrder, max_seconds: float) -> None:
        """max_seconds: the deadline of the whole run."""
        super().__init__(Feed(order.head()), order.checkpoint)
        self._order = order
        self._max_seconds = max_seconds
        self._until = 0.0
        self._drive: Drive | None = None
        self._records: dict[str, Records] = {}
        self._num_served = 0

    def cancel(self) -> None:
        """End every request within one forward, and begin nothing else."""
        super().cancel()
        if self._drive is not None:
            self._drive.stop()

    def decode(self, served: Served) -> Iterator[Wait]:
        """The loads, then what is computed of them."""
        if served.is_elsewhere:
            raise RefusalError("checkpoint", ELSEWHERE)
        self._until = time.monotonic() + self._max_seconds
        places = max(1, served.engine.max_running - 1)
        self.feed.add("about", about(served, places))
        asks = self._asks(served)
        for number, loading in enumerate(self._order.loads, 1):
            if self._is_over:
                break
            told = f"{loading.way.title}, {number} of {len(self._order.loads)}"
            tell = partial(self._tell, loading, told)
            found = yield from self._driven(served, loading, asks, places, tell)
            self._records[loading.way.name] = found  # of a curve the latest
            self._num_served += len(found)
        if not self._is_over:
            yield from self._held_against_ar(served, asks, places)
        if not self._is_over:
            yield from self._simulated(served, asks, places)
        self._say_how_it_ended()

    @property
    def _is_over(self) -> bool:
        return self.is_cancelled or time.monotonic() >= self._until

    def _asks(self, served: Served) -> tuple[Ask, ...]:
        order, checkpoint = self._order, served.checkpoint
        count = max(len(load.arrivals) for load in order.loads)
        return asks_of(
            checkpoint.name, checkpoint.tokenizer, order.mix, count, order.max_new_tokens, SEED,
            order.budget,
        )  # fmt: skip

    def _driven(
        self,
        served: Served,
        loading: Loading,
        asks: tuple[Ask, ...],
        places: int,
        tell: Callable[[Progress], None],
    ) -> Generator[Wait, None, Records]:
        """Drive a load in a thread of its own; tell of it twice a second. Raises EngineError."""
        asks = asks[: len(loading.arrivals)]
        left = max(0.0, self._until - time.monotonic())
        left = min(left, loading.seconds + DRAIN_SECONDS)
        line = len(asks)
        load = Load(loading.arrivals, asks, loading.way, places, line, left, self.owner)
        drive = self._drive = Drive(served.engine, load)
        faults: list[Exception] = []

        def work() -> None:
            try:
                drive.run()
            except Exception as error:
                faults.append(error)

        thread = threading.Thread(target=work, name="load", daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not self.is_cancelled:
                yield partial(thread.join, TICK_SECONDS)
                tell(drive.progress)
        finally:
            drive.stop()
            thread.join()
        if faults:
            raise faults[0]
        return drive.progress.records

    def _tell(self, loading: Loading, told: str, progress: Progress) -> None:
        """What goes on and the figures up to now; at the end of the load all else."""
        found = figures_of(progress.records, progress.now)
        asked = len(loading.arrivals)
        self.feed.say(f"{told}: {found.num_done} of {asked} requests answered…", "running")
        self.feed.add("tick", tick_line(loading.way.name, progress, found))
        if not progress.is_over:
            return
        for decision in progress.decisions:
            self.feed.add("decision", decision_line(loading.way, decision))
        if self._order.question == CURVE:
            point = point_of(progress.records, asked / loading.seconds, loading.seconds)
            self.feed.add("point", {"way": loading.way.name, **asdict(point)})

    def _closed(
        self, served: Served, way: Way, asks: tuple[Ask, ...], places: int
    ) -> Generator[Wait, None, Records]:
        """A load that is all there at the start, and of which nothing is told."""
        loading = Loading(way, (0.0,) * len(asks), 0.0, 0.0)
        return (yield from self._driven(served, loading, asks, places, lambda _: None))

    def _held_against_ar(
        self, served: Served, asks: tuple[Ask, ...], places: int
    ) -> Iterator[Wait]:
        """The share of each way's tokens that plain AR wrote too: of all requests where it was
        among the ways, else of a few that it answers now."""
        self.feed.say("Holding the answers against those of plain AR…", "running")
        is_sampled = AR not in self._records
        if is_sampled:
            way = ways_of(Bounds())[AR]
            found = yield from self._closed(served, way, asks[:NUM_SAMPLED], places)
        else:
            found = self._records[AR]
        for line in agreement_lines(self._records, found, is_sampled):
            self.feed.add("agreement", line)

    def _simulated(self, served: Served, asks: tuple[Ask, ...], places: int) -> Iterator[Wait]:
        """What a day of such requests would need, from costs measured now, by the last way."""
        self.feed.say("Measuring costs for the simulated day…", "running")
        way = self._order.loads[-1].way
        again = tuple(asks[place % len(asks)] for place in range(3 * places))
        alone = yield from self._closed(served, way, again[:places], 1)
        full = yield from self._closed(served, way, again, places)
        measured = costs_of(alone, full, places)
        if measured is not None and not self._is_over:
            self.feed.add("day", day_line(way, measured))

    def _say_how_it_ended(self) -> None:
        if self.is_cancelled:
            self.feed.say("Stopped; what is drawn was measured up to there.", "stopped")
        elif time.monotonic() >= self._until:
            limit = f"The time limit of {self._max_seconds:g} s is over"
            self.feed.say(f"{limit}; what is drawn was measured up to there.", "stopped")
        else:
            self.feed.say(f"Finished: {self._num_served} requests were served.", "finished")
