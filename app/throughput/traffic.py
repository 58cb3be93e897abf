"""Runs and handlers of the Load tab: several methods in turn, each on the same arrivals.

A run consists of parts: one method at one rate in one round. The first line of a value
(``run_log.py``) has the methods. Further lines are figures of the current part (``tick``),
decisions of the controller, points of a curve and, at the end, the agreement with AR. A part leaves
one slot of the engine free for other visitors.
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
"""Initial requests per second, for tiny models and for chat models: about what two cores can
serve.
"""
TICK_SECONDS = 0.5
DRAIN_SECONDS = 20.0
"""Seconds from the last arrival until unfinished requests are cancelled."""
ELSEWHERE = (
    "The Load tab is not available, because the model runs on another machine. Choose another tab."
)
NUM_SAMPLED = 8
"""Number of requests that plain AR answers at the end, if AR was not one of the methods."""
CANNOT_PAY = (
    "Drafting does not save time at this rate. The requests already use the whole machine, so "
    "drafts make each forward pass slower, which cancels the gain from fewer passes."
)
Records = tuple[RequestRecord, ...]
THREAD = "traffic"
"""Name of the thread that submits the requests of a part."""
NO_REQUEST = -1
"""Request number with which ``steered`` returns the settings of requests that are not late."""


class TrafficRun(TabRun[TrafficOrder]):
    """Runs all parts in succession, with a common deadline. The methods take turns in every round
    (``app/ui/rounds.py``).
    """

    def __init__(self, order: TrafficOrder, book: ExampleBook, max_seconds: float) -> None:
        super().__init__(RunLog(order.head()), order, book, max_seconds)
        self._until = 0.0
        self._num_slots = 1
        self._asks: tuple[Ask, ...] = ()
        self._drive: Drive | None = None
        self._records: dict[str, Records] = {}
        self._num_served = 0
        self._waits: dict[tuple[str, float], list[float]] = {}

    def cancel(self) -> None:
        super().cancel()
        if self._drive is not None:
            self._drive.stop()

    def decode(self, served: Served) -> Iterator[Wait]:
        """Run all parts, then compare the answers with those of AR."""
        if served.is_elsewhere:
            raise RefusalError("checkpoint", ELSEWHERE)
        self._until = time.monotonic() + self.max_seconds
        self._num_slots = max(1, served.engine.max_running - 1)
        self.log.add("about", about(served, self._num_slots))
        self._asks = self._drawn(served)
        for part in self.order.parts:
            if self._is_over:
                break
            state = f"{part.method.title}, round {part.round + 1} of {self.order.rounds}"
            if self.order.question == CURVE:
                state += f", {part.rate:g} requests/s"
            asks, tell = self._asks[: len(part.arrivals)], partial(self._log_progress, part, state)
            records = yield from self._run_part(served, part, asks, tell)
            self._records[part.method.name] = records  # replaces those of earlier parts
            self._num_served += len(records)
        if not self._is_over:
            yield from self._compare_with_ar(served)
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

    def _run_part(
        self,
        served: Served,
        part: Traffic,
        asks: tuple[Ask, ...],
        tell: Callable[[LoadProgress], None],
        places: int = 0,
    ) -> Generator[Wait, None, Records]:
        """Run the requests of a part in a thread, and call ``tell`` with the progress twice per
        second. Raises EngineError.
        """
        places = places or self._num_slots
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
                is_alive = thread.is_alive()  # before ``tell``, so that it gets the final progress
                tell(drive.progress)
        finally:
            drive.stop()
            thread.join()
        if faults:
            raise faults[0]
        return drive.progress.records

    def _log_progress(self, part: Traffic, state: str, progress: LoadProgress) -> None:
        """Log a status and the figures so far. At the end of the part, also log its decisions and
        its point of the curve.
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

    def _run_at_once(
        self, served: Served, method: LoadMethod, asks: tuple[Ask, ...], places: int = 0
    ) -> Generator[Wait, None, Records]:
        """Run requests that all arrive at the start, without logging them."""
        part = Traffic(method, (0.0,) * len(asks), 0.0, 0.0)
        return (yield from self._run_part(served, part, asks, lambda _: None, places))

    def _compare_with_ar(self, served: Served) -> Iterator[Wait]:
        """Log the agreement of each method with plain AR. If AR was not one of the methods, AR
        first answers NUM_SAMPLED of the requests.
        """
        self.log.say("Comparing the answers with those of plain AR…", "running")
        is_sampled = AR not in self._records
        if is_sampled:
            method = methods_for(Bounds())[AR]
            records = yield from self._run_at_once(served, method, self._asks[:NUM_SAMPLED])
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
            summary = self._finished_sentence()
            self.log.say(f"{summary} {CANNOT_PAY}" if self._cannot_pay() else summary, "finished")

    def _finished_sentence(self) -> str:
        order = self.order
        if order.question == CURVE:
            return f"Finished: {self._num_served} requests in {order.rounds} rounds."
        num = len(order.methods)
        who = "1 method" if num == 1 else f"{num} methods"
        requests = self._num_served // (num * order.rounds)
        return f"Finished: {who} × {order.rounds} rounds × {requests} requests."

    def _cannot_pay(self) -> bool:
        """Whether, at the highest rate, the median latency of lossless over the rounds was at least
        that of AR.
        """
        rate = max(part.rate for part in self.order.parts)
        waits = [self._waits.get((name, rate)) for name in (AR, LOSSLESS)]
        if not all(waits):
            return False
        plain, lossless = (statistics.median(seconds or ()) for seconds in waits)
        return lossless >= plain


class TrafficHandlers(TabHandlers[TrafficRun]):
    most_tokens = MAX_TOKENS

    def rate(self, checkpoint: object) -> float:
        """Return the initial requests per second. A chat model is larger, so its rate is lower."""
        return USUAL_RATE if self.engines.entry_or_default(checkpoint).gguf is None else CHAT_RATE

    def read(self, values: Mapping[str, Any]) -> TrafficRun:
        order = read_traffic_order(values, self.limits(values))
        return TrafficRun(order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        return RunLog({"ways": []})


def about(served: Served, places: int) -> dict[str, Any]:
    """Return the checkpoint and the machine of a run, and the maximum number of concurrent
    requests, ``places``.
    """
    facts_source = served.about
    facts = asdict(facts_source if isinstance(facts_source, Facts) else facts_of(facts_source))
    names = ("checkpoint", "hardware", "dtype", "threads", "versions")
    return {**{name: facts[name] for name in names}, "places": places}


def tick_line(method: str, progress: LoadProgress, figures: Figures) -> dict[str, Any]:
    """Return the figures of a part so far.

    tokens: number of tokens of all requests. over: true at the end of the part, otherwise absent.
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
    """Return the log line for a decision of the controller, with the τ and B of requests that are
    not late.
    """
    assert method.bounds is not None, "decisions come from methods with a controller"
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
    """Yield the agreement of each method with the texts of AR. num_requests: number of requests
    that both answered.
    """
    theirs = texts_of(ar)
    for method, texts in records.items():
        ours = texts_of(texts)
        shared = len(ours.keys() & theirs.keys())
        share = agreement(ours, theirs)
        yield {"way": method, "share": share, "num_requests": shared, "sampled": is_sampled}
