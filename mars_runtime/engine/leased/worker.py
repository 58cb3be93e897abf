"""Decodes calls in the process that has the device: the other side of a lease.

A process keeps its backends from call to call, with caches, captured steps and measured costs; it
is forked from one that has none. Every run of a call has the device to itself, so there is neither
thread nor queue here. Orders are read before each forward, and while a run rests. Knows no page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from mars_runtime.engine.backend import Backend, CheckpointBackend
from mars_runtime.engine.device import Device
from mars_runtime.engine.leased.calls import Call, News
from mars_runtime.engine.leased.slots import Reader, Slots
from mars_runtime.engine.run import Bell, Run, overdue
from mars_runtime.engine.schedule import Job, Schedule, Turn
from mars_runtime.events import End

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.load import Checkpoint

NEWS_SECONDS = 0.03  # between two yields, each of which is pickled
LOOK_SECONDS = 0.02  # between two looks at the orders while a run rests
SPARE_SECONDS = 2.0  # left of what was asked for when a run is ended for lack of time
OUT_OF_TIME = "The time that was asked for on the GPU is over: ask for fewer tokens."
Open = Callable[[str, "ForwardCosts | None"], Backend]
"""A backend for a checkpoint by its name, ready to decode; given the costs that are known."""


class Worker:
    """``decode`` is what a lease calls; ``open_backend`` is called once in a process for each
    checkpoint that is asked for there."""

    def __init__(self, slots: Slots, open_backend: Open) -> None:
        self._slots = slots
        self._open = open_backend
        self._backends: dict[str, Backend] = {}  # of the process it finds itself in

    def decode(self, call: Call) -> Generator[News, None, None]:
        """The events of the call as they come, one End for each lane among them."""
        began = time.monotonic()
        backend = self._backends.get(call.checkpoint)
        if backend is None:
            backend = self._open(call.checkpoint, call.costs)
            self._backends[call.checkpoint] = backend
        yield News(costs=getattr(backend, "costs", None))
        until = began + call.seconds - SPARE_SECONDS
        yield from _Lanes(call, backend, Reader(self._slots, call.slot, call.orders)).events(until)


class _Lanes:
    """The runs of one call."""

    def __init__(self, call: Call, backend: Backend, reader: Reader) -> None:
        schedule: Schedule[Run] = Schedule(1, 0)
        self._schedule = schedule
        self._reader = reader
        self._device = Device(backend)
        self._runs = [Run(asked, 0.0, Bell(), schedule) for asked in call.lanes]
        self._job = Job(self._runs, call.orders.pace)
        self._num_told = [0] * len(self._runs)
        for run, until in zip(self._runs, call.until, strict=True):
            run.deadline = until
            run.join_job(self._job)
        schedule.add(self._job)

    def events(self, until: float) -> Generator[News, None, None]:
        """Everything to the end, which is at ``until`` for what has not ended before."""
        told = time.monotonic()
        try:
            while not self._job.is_finished:
                now = time.monotonic()
                self._obey(now, until)
                rest = self._job.ready_at - now
                if not self._job.is_finished and rest <= 0:
                    turn = Turn("alone", (self._job.next_lane(),))
                    self._end(self._device.carry_out(turn))
                elif rest > 0:
                    time.sleep(min(rest, LOOK_SECONDS))
                if time.monotonic() - told >= NEWS_SECONDS:
                    told = time.monotonic()
                    yield self._news()
            yield self._news()
        finally:
            for run in self._runs:
                self._device.release(run)

    def _obey(self, now: float, until: float) -> None:
        """Take over what the orders say, and end what is to end."""
        orders = self._reader.latest()
        self._job.pace = orders.pace
        for index, run in enumerate(self._runs):
            run.is_cancelled = orders.is_stopped[index]
            if run.settings is not orders.settings[index]:
                run.settings = orders.settings[index]
        lanes = list(self._schedule.lanes())
        ends = dict(overdue(lanes, now))
        if now >= until:
            ends = {run: End("deadline", OUT_OF_TIME) for run in lanes} | ends
        self._end(ends)

    def _end(self, ends: Mapping[Run, End]) -> None:
        for run, end in ends.items():
            self._device.release(run)
            run.add(end)
            self._schedule.finish(self._job, run)

    def _news(self) -> News:
        """What has come since the last time."""
        events = []
        for lane, run in enumerate(self._runs):
            new = run.events_since(self._num_told[lane])
            self._num_told[lane] += len(new)
            events += [(lane, event) for event in new]
        return News(tuple(events))


def open_checkpoint(checkpoint: Checkpoint, costs: ForwardCosts | None) -> CheckpointBackend:
    """A backend in a process that was just forked, warm; costs are measured where they are not
    known, and nothing is kept of prompts: the process may be gone when the next one comes."""
    import torch

    from mars_runtime.engine.costs import measure_costs

    torch.set_num_threads(1)  # the threads of the process it was forked from are not there
    with torch.inference_mode():
        backend = CheckpointBackend(checkpoint, keeps=False)
        backend.warm_up_alone()
        backend.costs = measure_costs(checkpoint) if costs is None else costs
        backend.synchronize()
    return backend
