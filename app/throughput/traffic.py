"""The Load lab's run: methods in turn on the same arrivals.

The first line of a value (``run_log.py``) names the methods. Further lines are ticks of the current
part, decisions of the controller, points of a curve, and at the end agreement with AR. A part
leaves one of the engine's slots to other visitors.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from app.engines.engines import Served
from app.engines.limits import RefusalError
from app.throughput.traffic_order import (
    CURVE,
    MAX_TOKENS,
    SEED,
    Traffic,
    TrafficOrder,
    read_traffic_order,
)
from app.ui.examples import ExampleBook
from app.ui.run_log import RunLog
from app.ui.stream import STOPPED, TabHandlers, TabRun, Wait
from mars_runtime.engine.header import Facts, facts_of
from mars_runtime.traffic.controller import (
    AR,
    LOSSLESS,
    Bounds,
    Decision,
    LoadMethod,
    methods_for,
    steered,
)
from mars_runtime.traffic.drive import Drive, LoadProgress
from mars_runtime.traffic.figures import (
    Figures,
    RequestRecord,
    agreement,
    figures_of,
    point_of,
    texts_of,
)
from mars_runtime.traffic.workload import Ask, Workload, asks_of

USUAL_RATE, CHAT_RATE = 12.0, 3.0
"""Initial requests per second, for tiny models and for chat models: near what two cores can
serve.
"""
TICK_SECONDS = 0.5
DRAIN_SECONDS = 20.0
"""Seconds after the last arrival at which unfinished requests are cut."""
ELSEWHERE = "Load runs need the model on the page's own machine; it is on another one."
NUM_SAMPLED = 8
"""Number of requests that plain AR answers afterwards if it was not one of the methods."""
CANNOT_PAY = (
    "Drafting does not save time at this rate: the requests already use the whole machine, so the "
    "longer passes cost as much as the saved ones."
)
Records = tuple[RequestRecord, ...]
THREAD = "traffic"
"""Name of the thread that drives a part."""
NO_REQUEST = -1
"""A number that no request has."""


class TrafficRun(TabRun[TrafficOrder]):
    """All parts of an order, one after the other, until a common deadline. Methods take turns in
    every round (``app/ui/rounds.py``).
    """

    def __init__(self, order: TrafficOrder, book: ExampleBook, max_seconds: float) -> None:
        super().__init__(RunLog(order.head()), order, book, max_seconds)
        self._until = 0.0
        self._places = 1
        self._asks: tuple[Ask, ...] = ()
        self._drive: Drive | None = None
        self._records: dict[str, Records] = {}
        self._num_served = 0
        self._waits: dict[tuple[str, float], list[float]] = {}

    def cancel(self) -> None:
        """End every request within one forward and start nothing else."""
        super().cancel()
        if self._drive is not None:
            self._drive.stop()

    def decode(self, served: Served) -> Iterator[Wait]:
        """Run the parts, then compare the answers with AR's."""
        if served.is_elsewhere:
            raise RefusalError("checkpoint", ELSEWHERE)
        self._until = time.monotonic() + self.max_seconds
        self._places = max(1, served.engine.max_running - 1)
        self.log.add("about", about(served, self._places))
        self._asks = self._drawn(served)
        for part in self.order.parts:
            if self._is_over:
                break
            state = f"{part.method.title}, round {part.round + 1} of {self.order.rounds}"
            if self.order.question == CURVE:
                state += f", {part.rate:g} requests/s"
            asks, tell = self._asks[: len(part.arrivals)], partial(self._tell, part, state)
            records = yield from self._driven(served, part, asks, tell)
            self._records[part.method.name] = records  # for a curve: the latest part
            self._num_served += len(records)
        if not self._is_over:
            yield from self._held_against_ar(served)
        self._say_how_it_ended()

    @property
    def _is_over(self) -> bool:
        return self.is_cancelled or time.monotonic() >= self._until

    def _drawn(self, served: Served) -> tuple[Ask, ...]:
        order, checkpoint = self.order, served.checkpoint
        count = max(len(part.arrivals) for part in order.parts)
        return asks_of(
            checkpoint.name, checkpoint.tokenizer, order.mix, count, order.max_new_tokens, SEED,
            order.budget, order.system,
        )  # fmt: skip

    def _driven(
        self,
        served: Served,
        part: Traffic,
        asks: tuple[Ask, ...],
        tell: Callable[[LoadProgress], None],
        places: int = 0,
    ) -> Generator[Wait, None, Records]:
        """Drive a part in a thread; call ``tell`` with its progress twice a second. Raises
        EngineError.
        """
        places = places or self._places
        left = min(max(0.0, self._until - time.monotonic()), part.seconds + DRAIN_SECONDS)
        workload = Workload(part.arrivals, asks, part.method, places, len(asks), left, self.owner)
        drive = self._drive = Drive(served.engine, workload)
        faults: list[Exception] = []

        def work() -> None:
            try:
                drive.run()
            except Exception as error:
                faults.append(error)

        thread = threading.Thread(target=work, name=THREAD, daemon=True)
        thread.start()
        is_alive = True
        try:
            while is_alive and not self.is_cancelled:
                yield partial(thread.join, TICK_SECONDS)
                is_alive = thread.is_alive()  # read before the progress, so no event is missed
                tell(drive.progress)
        finally:
            drive.stop()
            thread.join()
        if faults:
            raise faults[0]
        return drive.progress.records

    def _tell(self, part: Traffic, state: str, progress: LoadProgress) -> None:
        """Log the state and the figures so far; at the end of the part also its decisions and its
        point.
        """
        figures = figures_of(progress.records, progress.now)
        num_arrivals = len(part.arrivals)
        self.log.say(f"{state}: {figures.num_done} of {num_arrivals} requests answered…", "running")
        self.log.add("tick", tick_line(part.method.name, progress, figures))
        if not progress.is_over:
            return
        if figures.latency is not None:
            waits = self._waits.setdefault((part.method.name, part.rate), [])
            waits.append(figures.latency.p50)
        for decision in progress.decisions:
            self.log.add("decision", decision_line(part.method, decision))
        if self.order.question == CURVE:
            point = point_of(progress.records, num_arrivals / part.seconds, part.seconds)
            self.log.add("point", {"way": part.method.name, **asdict(point)})

    def _closed(
        self, served: Served, method: LoadMethod, asks: tuple[Ask, ...], places: int = 0
    ) -> Generator[Wait, None, Records]:
        """Run requests that are all present at the start, without logging them."""
        part = Traffic(method, (0.0,) * len(asks), 0.0, 0.0)
        return (yield from self._driven(served, part, asks, lambda _: None, places))

    def _held_against_ar(self, served: Served) -> Iterator[Wait]:
        """Log the agreement of each method with plain AR: over all requests if AR was one of the
        methods, otherwise over a few that AR answers now.
        """
        self.log.say("Comparing the answers with those of plain AR…", "running")
        is_sampled = AR not in self._records
        if is_sampled:
            method = methods_for(Bounds())[AR]
            records = yield from self._closed(served, method, self._asks[:NUM_SAMPLED])
        else:
            records = self._records[AR]
        for line in agreement_lines(self._records, records, is_sampled):
            self.log.add("agreement", line)

    def _say_how_it_ended(self) -> None:
        if self.is_cancelled:
            self.log.say(STOPPED, "stopped")
        elif time.monotonic() >= self._until:
            self.log.say(f"{self.time_is_over}. The results up to this point are shown.", "stopped")
        else:
            said = self._finished_sentence()
            self.log.say(f"{said} {CANNOT_PAY}" if self._cannot_pay() else said, "finished")

    def _finished_sentence(self) -> str:
        order = self.order
        if order.question == CURVE:
            return f"Finished: {self._num_served} requests in {order.rounds} rounds."
        num = len(order.methods)
        who = "1 method" if num == 1 else f"{num} methods"
        requests = self._num_served // (num * order.rounds)
        return f"Finished: {who} × {order.rounds} rounds × {requests} requests."

    def _cannot_pay(self) -> bool:
        """Whether the lossless median latency was not lower than AR's, by medians over the rounds
        at the highest rate.
        """
        rate = max(part.rate for part in self.order.parts)
        waits = [self._waits.get((name, rate)) for name in (AR, LOSSLESS)]
        if not all(waits):
            return False
        plain, lossless = (statistics.median(seconds or ()) for seconds in waits)
        return lossless >= plain


class TrafficHandlers(TabHandlers[TrafficRun]):
    """Handlers of the tab; one object serves every visitor, by session."""

    most_tokens = MAX_TOKENS

    def rate(self, checkpoint: object) -> float:
        """Return the initial requests per second; lower for a chat model, which is larger."""
        return USUAL_RATE if self.engines.entry_or_default(checkpoint).gguf is None else CHAT_RATE

    def read(self, values: Mapping[str, Any]) -> TrafficRun:
        """Validate the controls and return the run that they request, not started. Raises
        RefusalError.
        """
        order = read_traffic_order(values, self.limits(values))
        return TrafficRun(order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        """Return an empty log for a run that cannot start."""
        return RunLog({"ways": []})


def about(served: Served, places: int) -> dict[str, Any]:
    """Return the checkpoint and machine of a run, and how many requests are submitted at once."""
    here = served.about
    facts = asdict(here if isinstance(here, Facts) else facts_of(here))
    names = ("checkpoint", "hardware", "dtype", "threads", "versions")
    return {**{name: facts[name] for name in names}, "places": places}


def tick_line(method: str, progress: LoadProgress, figures: Figures) -> dict[str, Any]:
    """Return the figures of a part so far. tokens: generated by all requests. over: present at its
    end.
    """
    tokens = sum(record.num_tokens for record in progress.records)
    over = {"over": True} if progress.is_over else {}
    return {
        "way": method,
        "at": round(progress.now, 3),
        "tokens": tokens,
        **over,
        **asdict(figures),
    }


def decision_line(method: LoadMethod, decision: Decision) -> dict[str, Any]:
    """Return a decision, with the tau and B that it sets for a request that is not late."""
    assert method.bounds is not None, "only a controller decides"
    settings = steered(method.settings, method.bounds, decision, NO_REQUEST)
    return {
        "way": method.name,
        "at": round(decision.at, 3),
        "queue": decision.queue,
        "level": decision.level,
        "tau": settings.tau,
        "block_size": settings.block_size,
        "lossless": settings.lossless,
        "late": len(decision.late),
    }


def agreement_lines(
    records: Mapping[str, Sequence[RequestRecord]], ar: Sequence[RequestRecord], is_sampled: bool
) -> Iterator[dict[str, Any]]:
    """Yield the agreement of each method with AR's texts. ``num_requests``: answered by both."""
    theirs = texts_of(ar)
    for method, texts in records.items():
        ours = texts_of(texts)
        shared = len(ours.keys() & theirs.keys())
        share = agreement(ours, theirs)
        yield {"way": method, "share": share, "num_requests": shared, "sampled": is_sampled}
