"""Prometheus metrics of engines, under vLLM's names with the prefix ``mars:``.

Times are wall-clock times, including queueing and pauses.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

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
from mars_runtime.runs.annotations import step_drafting
from mars_runtime.runs.events import End, Event, Prefill, RowStep, Step

# Reasons why a run ended, under vLLM's names.
FINISHED = {"eos": "stop", "limit": "length", "repeats": "length", "cancelled": "abort"}
LABEL = "model_name"
SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320)
TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


@dataclass(slots=True)
class _RunState:
    """first, latest: times of the run's first and latest forward pass."""

    num_tokens: int = 0
    num_cached: int = 0
    first: float = 0.0
    latest: float = 0.0
    latest_row: dict[int, RowStep] = field(default_factory=dict)


class Metrics:
    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        self._gauges = {
            "num_running": gauge("num_requests_running", "Requests in progress"),
            "num_waiting": gauge("num_requests_waiting", "Requests in the queue"),
            "usage": gauge("kv_cache_usage_perc", "Used share of the KV cache slots"),
            "max_tau": gauge("busy_max_tau", "Limit of tau in force (serve --busy-tau)"),
            "max_block_size": gauge("busy_max_block_size", "Limit of B in force, lossless mode"),
        }
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens")
        self._generation_tokens = counter("generation_tokens", "Generated tokens")
        self._success = counter("request_success", "Finished requests", "finished_reason")
        per_token = "request_time_per_output_token_seconds"
        self._first_token = histogram("time_to_first_token_seconds", "To the first tokens", LONG)
        self._between = histogram("inter_token_latency_seconds", "Between forward passes", SHORT)
        self._per_token = histogram(per_token, "Mean per token after the first", SHORT)
        self._whole_time = histogram("e2e_request_latency_seconds", "To the end", LONG)
        self._queue_time = histogram("request_queue_time_seconds", "To the first pass", LONG)
        self._iteration_tokens = histogram("iteration_tokens_total", "Tokens of a pass", TOKENS)
        self._drafts = counter("spec_decode_num_drafts", "Forward passes that verified drafts")
        self._draft_tokens = counter("spec_decode_num_draft_tokens", "Verified draft tokens")
        self._accepted = counter("spec_decode_num_accepted_tokens", "Accepted draft tokens")
        per_position = "spec_decode_num_accepted_tokens_per_pos"
        self._accepted_at = counter(per_position, "Accepted draft tokens", "position")
        # By model, the rows and tokens that were counted so far for the latest shared forward pass.
        self._forward: dict[str, tuple[int, int]] = {}

    def watch(self, name: str, engine: BaseEngine) -> None:
        """Start to count the runs of an engine. Gauges show the latest engine of a name."""
        active: dict[Run, _RunState] = {}

        def usage() -> float:
            sizes = [state.num_cached for run, state in list(active.items()) if run.job.is_shared]
            return min(1.0, sum(sizes) / (engine.max_running * engine.capacity))

        for key, read in (
            ("num_running", lambda: engine.num_running),
            ("num_waiting", lambda: engine.num_waiting),
            ("usage", usage),
            ("max_tau", lambda: engine.busy_limits[0]),
            ("max_block_size", lambda: engine.busy_limits[1]),
        ):
            self._gauges[key].labels(name).set_function(read)
        engine.observe(lambda run, event: self._count(name, active, run, event))

    def forget(self, name: str) -> None:
        """Set the gauges of a closed engine to 0. Its counters keep their values."""
        for gauge in self._gauges.values():
            gauge.labels(name).set_function(lambda: 0.0)

    def expose(self) -> bytes:
        return generate_latest(self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"mars:{name}", about, [LABEL], registry=self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"mars:{name}", about, [LABEL, *labels], registry=self._registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"mars:{name}", about, [LABEL], registry=self._registry, buckets=buckets)

    def _count(self, name: str, active: dict[Run, _RunState], run: Run, event: Event) -> None:
        now = time.monotonic()
        state = active.setdefault(run, _RunState())
        if isinstance(event, Prefill):
            is_plain = isinstance(run.request, Request)
            state.num_cached = len(run.request.prompt_ids) if is_plain else event.num_tokens  # type: ignore[union-attr]
            self._prompt_tokens.labels(name).inc(state.num_cached)
            self._queue_time.labels(name).observe((run.began or now) - run.submitted)
        elif isinstance(event, Step):
            self._count_step(name, run, state, event, now)
        elif isinstance(event, End):
            del active[run]
            reason = "stop" if run.is_cut else FINISHED.get(event.reason, event.reason)
            self._success.labels(name, reason).inc()
            self._whole_time.labels(name).observe(now - run.submitted)
            if state.num_tokens > 1:
                seconds = (state.latest - state.first) / (state.num_tokens - 1)
                self._per_token.labels(name).observe(seconds)

    def _count_step(self, name: str, run: Run, state: _RunState, step: Step, now: float) -> None:
        num_new = sum(len(row.accepted) for row in step.rows)
        if state.num_tokens:
            self._between.labels(name).observe(now - state.latest)
        else:
            state.first = now
            self._first_token.labels(name).observe(now - run.submitted)
        state.latest = now
        state.num_tokens += num_new
        state.num_cached += num_new
        self._generation_tokens.labels(name).inc(num_new)
        num_rows, num_tokens = self._forward.pop(name, (0, 0))
        if num_rows == run.num_sharing:  # the last run of a shared forward pass
            self._iteration_tokens.labels(name).observe(num_tokens + num_new)
        else:
            self._forward[name] = num_rows + 1, num_tokens + num_new
        for row in step.rows:
            num_drafted, num_accepted = step_drafting(row, state.latest_row.get(row.row))
            state.latest_row[row.row] = row
            if num_drafted:
                self._drafts.labels(name).inc()
                self._draft_tokens.labels(name).inc(num_drafted)
                self._accepted.labels(name).inc(num_accepted)
                for position in range(num_accepted):
                    self._accepted_at.labels(name, str(position)).inc()
