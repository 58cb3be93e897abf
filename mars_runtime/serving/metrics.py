"""Prometheus metrics of engines, computed from the events of all their runs.

An engine's worker thread only enqueues its events. They are counted by a thread of this module, or
when the metrics are read. Metrics have vLLM's names with the prefix ``mars:``. Times are wall-clock
times, including queueing and pauses. Labels contain no prompt and no visitor data.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from mars_runtime.engine.engine import BaseEngine
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.runs.derived import drafting
from mars_runtime.runs.events import End, Event, Prefill, RowStep, Step

FOLD_SECONDS = 1.0
FINISHED = {"eos": "stop", "limit": "length", "repeats": "length", "cancelled": "abort"}
"""Reason why a run ended -> OpenAI's and vLLM's name for it, where it differs."""
LABEL = "model_name"
SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320)
TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class _Observation:
    """An event of a run, as the engine reported it.

    name: the model's name. seconds: the time of the event, by the monotonic clock. num_sharing:
    number of other runs in the same forward pass.
    """

    name: str
    run: Run
    event: Event
    seconds: float
    num_sharing: int


@dataclass(slots=True)
class _RunState:
    """The counts of a run in flight.

    num_tokens: number of generated tokens. num_counted: number of them that were sent and counted.
    num_cached: number of tokens in the KV cache. first, latest: times of the first and the latest
    forward pass. latest_row: the latest step of each row. end: the last
    event of the run.
    """

    num_tokens: int = 0
    num_counted: int = 0
    num_cached: int = 0
    first: float = 0.0
    latest: float = 0.0
    latest_row: dict[int, RowStep] = field(default_factory=dict)
    end: End | None = None


class Metrics:
    """The metrics of all engines of a process, labelled with the names of their models."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._series = MetricSeries(self._registry)
        self._observations: SimpleQueue[_Observation] = SimpleQueue()
        self._active: dict[str, dict[Run, _RunState]] = {}
        # By model, the runs and tokens that were counted so far for the latest shared forward pass.
        self._forward: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None  # started by the first ``watch``

    def watch(self, name: str, engine: BaseEngine) -> None:
        """Start to count the runs of an engine, under the name of its model.

        If several engines have had the same name, the gauges show the latest one.
        """

        def observe(run: Run, event: Event) -> None:
            observation = _Observation(name, run, event, time.monotonic(), run.num_sharing)
            self._observations.put(observation)

        active = self._active.setdefault(name, {})

        def usage() -> float:
            sizes = [state.num_cached for run, state in list(active.items()) if run.job.is_shared]
            return min(1.0, sum(sizes) / (engine.max_running * engine.capacity))

        self._series.running.labels(name).set_function(lambda: engine.num_running)
        self._series.waiting.labels(name).set_function(lambda: engine.num_waiting)
        self._series.cache.labels(name).set_function(usage)
        self._series.max_tau.labels(name).set_function(lambda: engine.busy_limits[0])
        self._series.max_block_size.labels(name).set_function(lambda: engine.busy_limits[1])
        engine.observe(observe)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mars-metrics", daemon=True)
                self._thread.start()

    def forget(self, name: str) -> None:
        """Set the gauges of a closed engine to 0. Its counters keep their values."""
        for gauge in self._series.gauges:
            gauge.labels(name).set_function(lambda: 0.0)

    def expose(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._fold()
        return generate_latest(self._registry)

    def close(self) -> None:
        """Stop the thread. Events that were not counted yet are dropped."""
        self._is_closed.set()

    def _work(self) -> None:
        while not self._is_closed.wait(FOLD_SECONDS):
            self._fold()

    def _fold(self) -> None:
        with self._lock:
            while True:
                try:
                    observation = self._observations.get_nowait()
                except Empty:
                    break
                self._count(observation)
            for name, active in list(self._active.items()):
                for run, state in list(active.items()):
                    self._count_sent(name, run, state)

    def _count(self, observation: _Observation) -> None:
        event, series, name = observation.event, self._series, observation.name
        active = self._active[name]
        state = active.setdefault(observation.run, _RunState())
        if isinstance(event, Prefill):
            request = observation.run.request
            is_plain = isinstance(request, Request)
            state.num_cached = len(request.prompt_ids) if is_plain else event.num_tokens  # type: ignore[union-attr]
            series.prompt_tokens.labels(name).inc(state.num_cached)
            began = observation.run.began or observation.seconds
            series.queue_time.labels(name).observe(began - observation.run.submitted)
        elif isinstance(event, Step):
            self._count_step(observation, event, state)
        else:
            self._count_end(observation, event, state)
            self._count_sent(name, observation.run, state)

    def _count_step(self, observation: _Observation, step: Step, state: _RunState) -> None:
        series, name = self._series, observation.name
        num_new = sum(len(row.accepted) for row in step.rows)
        if state.num_tokens:
            series.between.labels(name).observe(observation.seconds - state.latest)
        else:
            state.first = observation.seconds
            waited = observation.seconds - observation.run.submitted
            series.first_token.labels(name).observe(waited)
        state.latest = observation.seconds
        state.num_tokens += num_new
        state.num_cached += num_new
        num_rows, num_tokens = self._forward.get(name, (0, 0))
        self._forward[name] = num_rows + 1, num_tokens + num_new
        if num_rows == observation.num_sharing:  # the last run of a shared forward pass
            series.iteration_tokens.labels(name).observe(num_tokens + num_new)
            del self._forward[name]
        for row in step.rows:
            self._count_drafts(name, row, state)

    def _count_drafts(self, name: str, row: RowStep, state: _RunState) -> None:
        num_drafted, num_accepted = drafting(row, state.latest_row.get(row.row))
        state.latest_row[row.row] = row
        if not num_drafted:
            return
        self._series.drafts.labels(name).inc()
        self._series.draft_tokens.labels(name).inc(num_drafted)
        self._series.accepted_tokens.labels(name).inc(num_accepted)
        for position in range(num_accepted):
            self._series.accepted_at.labels(name, str(position)).inc()

    def _count_end(self, observation: _Observation, end: End, state: _RunState) -> None:
        series, name = self._series, observation.name
        state.end, state.num_cached = end, 0
        series.whole_time.labels(name).observe(observation.seconds - observation.run.submitted)
        if state.num_tokens > 1:
            seconds = (state.latest - state.first) / (state.num_tokens - 1)
            series.per_token.labels(name).observe(seconds)

    def _count_sent(self, name: str, run: Run, state: _RunState) -> None:
        """Count the tokens that were sent since the last call, and the run if it is over.

        A run with a reader is over when the reader has cancelled it: before that, tokens after a
        stop string are not known yet.
        """
        is_over = state.end is not None and (run.num_sent is None or run.is_cancelled)
        num_sent = state.num_tokens if run.num_sent is None else run.num_sent
        self._series.generation_tokens.labels(name).inc(num_sent - state.num_counted)
        state.num_counted = num_sent
        if is_over and state.end is not None:
            reason = "stop" if run.is_cut else FINISHED.get(state.end.reason, state.end.reason)
            self._series.success.labels(name, reason).inc()
            del self._active[name][run]


class MetricSeries:
    """The Prometheus metrics in one registry. All times are wall-clock times in seconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"mars:{name}", about, [LABEL], registry=registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"mars:{name}", about, [LABEL, *labels], registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"mars:{name}", about, [LABEL], registry=registry, buckets=buckets)

        self.running = gauge("num_requests_running", "Requests in progress")
        self.waiting = gauge("num_requests_waiting", "Requests in the queue")
        self.cache = gauge("kv_cache_usage_perc", "Used share of the KV cache slots")
        self.max_tau = gauge("busy_max_tau", "Limit of tau in force (serve --busy-tau)")
        self.max_block_size = gauge("busy_max_block_size", "Limit of B in force, lossless mode")
        shown = (self.running, self.waiting, self.cache, self.max_tau, self.max_block_size)
        self.gauges: tuple[Gauge, ...] = shown
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens")
        self.generation_tokens = counter("generation_tokens", "Tokens that were sent")
        self.success = counter("request_success", "Finished requests", "finished_reason")
        self.first_token = histogram(
            "time_to_first_token_seconds", "Time from submission to the first tokens", LONG
        )
        self.between = histogram(
            "inter_token_latency_seconds", "Time between two forward passes of a request", SHORT
        )
        self.per_token = histogram(
            "request_time_per_output_token_seconds",
            "Mean time per token after the first, by request",
            SHORT,
        )
        self.whole_time = histogram(
            "e2e_request_latency_seconds", "Time from submission to the end", LONG
        )
        self.queue_time = histogram(
            "request_queue_time_seconds", "Time from submission to the first forward pass", LONG
        )
        self.iteration_tokens = histogram(
            "iteration_tokens_total",
            "Tokens written by one forward pass, over all its requests",
            TOKENS,
        )
        self.drafts = counter("spec_decode_num_drafts", "Forward passes that verified drafts")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "Verified draft tokens")
        self.accepted_tokens = counter("spec_decode_num_accepted_tokens", "Accepted draft tokens")
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted draft tokens by position",
            "position",
        )
