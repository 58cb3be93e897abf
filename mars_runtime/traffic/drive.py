"""Submits requests to a real engine at their arrival times and records each of them.

The loop is open: an arrival never waits for an earlier answer. Only a few requests are submitted at
a time; the others wait here in order of arrival. So the queue has the length that is reported, and
other users of the engine still get slots. The engine is polled every LOOK_SECONDS, which costs its
worker nothing.
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

LOOK_SECONDS = 0.004
"""Interval between two polls of the engine: the maximum error of a recorded time."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A load ``now`` seconds after its start: the requests so far, and the decisions."""

    now: float = 0.0
    records: tuple[RequestRecord, ...] = ()
    decisions: tuple[Decision, ...] = ()
    is_over: bool = False


class Drive:
    """Drives one workload. Any thread can read ``progress`` while it runs."""

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
        """Run the load to its end. Raises EngineError if the engine is closed."""
        begin = time.monotonic()
        try:
            while not self.progress.is_over:
                self._look(time.monotonic() - begin)
                self._stopped.wait(0.0 if self.progress.is_over else LOOK_SECONDS)
        finally:
            for run in self._runs.values():
                run.cancel()
        return self.progress

    def stop(self) -> None:
        """End every request within one forward. Thread-safe, also before the start."""
        self._stopped.set()

    def _look(self, now: float) -> None:
        """Do everything that is due at ``now``."""
        for number in list(self._runs):
            self._read(number, now)
        is_cut = self._stopped.is_set() or now >= self._workload.max_seconds
        if is_cut:
            self._cut(now)
        else:
            self._arrive(now)
            self._control(now)
            self._admit(now)
        is_over = is_cut or (
            len(self._records) == len(self._workload.asks) and not self._unfinished()
        )
        records = tuple(self._records.values())
        self.progress = LoadProgress(now, records, tuple(self._decisions), is_over)

    def _unfinished(self) -> list[RequestRecord]:
        return [self._records[number] for number in (*self._runs, *self._waiting)]

    def _read(self, number: int, now: float) -> None:
        """Add the new events of a run to its record."""
        events = self._runs[number].events_since(self._num_read[number])
        self._num_read[number] += len(events)
        record = self._records[number]
        for event in events:
            record = record.after(event, now)
        self._records[number] = record
        if record.is_over:
            del self._runs[number], self._num_read[number]

    def _arrive(self, now: float) -> None:
        while len(self._records) < len(self._workload.asks):
            number = len(self._records)
            at, ask = self._workload.arrivals[number], self._workload.asks[number]
            if at > now:
                return
            record = RequestRecord(number, at, ask.max_new_tokens, ask.budget)
            has_room = len(self._waiting) < self._workload.max_queue
            self._records[number] = record if has_room else record.over("refused", now)
            if has_room:
                self._waiting.append(number)

    def _control(self, now: float) -> None:
        """Decide, and steer the running requests if the decision changed."""
        bounds = self._workload.method.bounds
        if bounds is None:
            return
        # A request that gets a slot at once does not count as waiting.
        queue = max(0, len(self._waiting) - (self._workload.places - len(self._runs)))
        seen = Observation(now, queue, self._workload.places, self._unfinished())
        before, (self._state, decision) = self._state, decide(self._state, seen)
        is_new = decision.level != before.level or not decision.late <= before.late
        if self._decisions and not is_new:
            return
        self._decisions.append(decision)
        for number, run in self._runs.items():
            run.settings = steered(run.settings, bounds, decision, number)

    def _admit(self, now: float) -> None:
        """Submit the requests that have waited longest, as far as there are slots."""
        while self._waiting and len(self._runs) < self._workload.places:
            number = self._waiting[0]
            try:
                self._runs[number] = self._engine.submit(self._request(number))
            except EngineBusy:  # other users have taken the slots: try again later
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
        """Cancel all unfinished requests."""
        for run in self._runs.values():
            run.cancel()
        for record in self._unfinished():
            self._records[record.number] = record.over("cut", now)
        self._waiting.clear()
