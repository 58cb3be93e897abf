"""Submit the requests of a load to an engine at their arrival times and record each request.

Arrivals follow the clock and never wait for earlier answers (an open loop). At most
``Workload.places`` requests are in the engine at a time, so other users of the engine also get
slots. The other requests wait in this module's queue, in order of arrival. The engine is polled
every POLL_SECONDS.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.traffic.controller import ControllerState, Decision, Observation, decide, steered
from mars_runtime.traffic.figures import RequestRecord

if TYPE_CHECKING:
    from mars_runtime.engine.base import BaseEngine
    from mars_runtime.engine.run import Run
    from mars_runtime.traffic.workload import Workload

POLL_SECONDS = 0.004
"""Interval between two polls of the engine. Recorded times are late by up to this much."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The requests that arrived and the decisions up to ``now``, in seconds since the start."""

    now: float = 0.0
    records: tuple[RequestRecord, ...] = ()
    decisions: tuple[Decision, ...] = ()
    is_over: bool = False


class Drive:
    """Runs one workload on an engine. Any thread may read ``progress`` while it runs."""

    def __init__(self, engine: BaseEngine, workload: Workload) -> None:
        self.progress = LoadProgress()
        self._engine = engine
        self._workload = workload
        self._records: dict[int, RequestRecord] = {}
        self._runs: dict[int, Run] = {}
        self._num_read: dict[int, int] = {}
        self._waiting: list[int] = []
        self._state = ControllerState()
        self._decisions: list[Decision] = []
        self._stopped = threading.Event()

    def run(self) -> LoadProgress:
        """Run until all requests have ended. Raises EngineError if the engine is closed."""
        begin = time.monotonic()
        try:
            while not self.progress.is_over:
                self._advance(time.monotonic() - begin)
                self._stopped.wait(0.0 if self.progress.is_over else POLL_SECONDS)
        finally:
            for run in self._runs.values():
                run.cancel()
        return self.progress

    def stop(self) -> None:
        """Cancel all requests; each ends within one forward pass. Any thread may call this."""
        self._stopped.set()

    def _advance(self, now: float) -> None:
        """Read new events, then enqueue, control and submit requests as of ``now``."""
        for number in list(self._runs):
            self._read(number, now)
        is_cut = self._stopped.is_set() or now >= self._workload.max_seconds
        if is_cut:
            self._cut(now)
        else:
            self._enqueue_arrivals(now)
            self._control(now)
            self._submit(now)
        is_over = is_cut or (
            len(self._records) == len(self._workload.asks) and not self._unfinished()
        )
        records = tuple(self._records.values())
        self.progress = LoadProgress(now, records, tuple(self._decisions), is_over)

    def _unfinished(self) -> list[RequestRecord]:
        return [self._records[number] for number in (*self._runs, *self._waiting)]

    def _read(self, number: int, now: float) -> None:
        events = self._runs[number].events_since(self._num_read[number])
        self._num_read[number] += len(events)
        record = self._records[number]
        for event in events:
            record = record.after(event, now)
        self._records[number] = record
        if record.is_over:
            del self._runs[number], self._num_read[number]

    def _enqueue_arrivals(self, now: float) -> None:
        while len(self._records) < len(self._workload.asks):
            number = len(self._records)
            at, ask = self._workload.arrivals[number], self._workload.asks[number]
            if at > now:
                return
            record = RequestRecord(number, at, ask.max_new_tokens, ask.budget)
            fits = len(self._waiting) < self._workload.max_queue
            self._records[number] = record if fits else record.over("refused", now)
            if fits:
                self._waiting.append(number)

    def _control(self, now: float) -> None:
        """Let the controller decide; apply a changed decision to the running requests."""
        bounds = self._workload.method.bounds
        if bounds is None:
            return
        # Requests for which a slot is free do not count as waiting.
        queue = max(0, len(self._waiting) - (self._workload.places - len(self._runs)))
        observed = Observation(now, queue, self._workload.places, self._unfinished())
        before, (self._state, decision) = self._state, decide(self._state, observed)
        is_new = decision.level != before.level or not decision.late <= before.late
        if self._decisions and not is_new:
            return
        self._decisions.append(decision)
        for number, run in self._runs.items():
            run.settings = steered(run.settings, bounds, decision, number)

    def _submit(self, now: float) -> None:
        """Submit waiting requests in order of arrival while there are free slots."""
        while self._waiting and len(self._runs) < self._workload.places:
            number = self._waiting[0]
            try:
                self._runs[number] = self._engine.submit(self._request(number))
            except EngineBusy:  # other users occupy the engine: retry at the next poll
                return
            except RequestError:
                self._records[number] = self._records[number].over("refused", now)
            else:
                self._num_read[number] = 0
                self._records[number] = self._records[number].admitted_at(now)
            self._waiting.pop(0)

    def _request(self, number: int) -> Request:
        ask, method = self._workload.asks[number], self._workload.method
        settings = replace(method.settings, max_new_tokens=ask.max_new_tokens)
        if method.bounds is not None:
            settings = steered(settings, method.bounds, self._decisions[-1], number)
        load = self._workload
        return Request(ask.prompt_ids, settings, load.max_seconds, owner=load.owner)

    def _cut(self, now: float) -> None:
        for run in self._runs.values():
            run.cancel()
        for record in self._unfinished():
            self._records[record.number] = record.over("cut", now)
        self._waiting.clear()
