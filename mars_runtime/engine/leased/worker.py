"""Messages to and from the process that uses the leased device, and the worker that decodes there.

A call and its news are pickled. Settings that change during a call come through a file, which the
worker reads before each forward pass and while a run pauses.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mars_runtime.engine.backend import Backend, CheckpointBackend
from mars_runtime.engine.device import Device
from mars_runtime.engine.request import AnyRequest, Request
from mars_runtime.engine.run import Run, WakeCondition, overdue
from mars_runtime.engine.scheduler import DeviceTurn, Job, Scheduler
from mars_runtime.runs.events import End, Event
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.load import Checkpoint

START_SECONDS = 15.0
PREFILL_RATE, DECODE_RATE = 1000.0, 25.0  # cautious guesses of tokens per second of a lane
CUSTOM_DECODER_SECONDS, MOST_SECONDS = 60.0, 90.0
NEWS_SECONDS = 0.03  # minimum seconds between two messages, because each one is pickled
POLL_SECONDS = 0.02  # seconds between two reads of the settings while a run pauses
SPARE_SECONDS = 2.0  # runs are ended this many seconds before the requested time is over
OUT_OF_TIME = "The requested GPU time is used up. Request fewer tokens."
Open = Callable[[str], Backend]


@dataclass(frozen=True, slots=True)
class SharedSettings:
    pace: float
    settings: tuple[DecodeSettings, ...]
    is_stopped: tuple[bool, ...]

    def write(self, path: Path) -> None:
        """Replace the file at once, so that no other process reads a part. Raises OSError."""
        partial = path.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(self))
        partial.replace(path)


class LeaseError(RuntimeError):
    """A device was not leased, or was withdrawn."""


@dataclass(frozen=True, slots=True)
class Call:
    """The lanes of one job, decoded in one call of a lease.

    path: file with the current settings, deleted when the caller has gone.
    until: time at which each lane must end, on the monotonic clock of the machine.
    shared: the initial settings.
    """

    path: Path
    checkpoint: str
    lanes: tuple[AnyRequest, ...]
    until: tuple[float, ...]
    shared: SharedSettings

    @property
    def seconds(self) -> float:
        """Device time to request: unused time is not charged, but must be available."""
        pairs = zip(self.lanes, self.shared.settings, strict=True)
        forwards = sum(_seconds(lane, settings.max_new_tokens) for lane, settings in pairs)
        return min(MOST_SECONDS, START_SECONDS + forwards * (1 + self.shared.pace))


def _seconds(lane: AnyRequest, num_tokens: int) -> float:
    if not isinstance(lane, Request):
        return CUSTOM_DECODER_SECONDS
    return len(lane.prompt_ids) / PREFILL_RATE + num_tokens / DECODE_RATE


@dataclass(frozen=True, slots=True)
class News:
    """Events as (lane number, event), in order; the first message of a call has the costs. An empty
    one lets the consumer close the stream, which it can do only when it receives something.
    """

    events: tuple[tuple[int, Event], ...] = ()
    costs: ForwardCosts | None = None


Decode = Callable[[Call], Generator[News, None, None]]

Lease = Callable[[Call], Generator[News, None, None]]
"""Decodes a call in another process; raises LeaseError."""


class Worker:
    """Its backends stay open between calls, with their caches."""

    def __init__(self, open_backend: Open) -> None:
        self._open = open_backend
        self._backends: dict[str, Backend] = {}  # by name of the checkpoint

    def decode(self, call: Call) -> Generator[News, None, None]:
        """Yield the events of the call as they happen, with one End for each lane."""
        began = time.monotonic()
        backend = self._backends.get(call.checkpoint)
        if backend is None:
            backend = self._backends[call.checkpoint] = self._open(call.checkpoint)
        yield News(costs=backend.costs)
        until = began + call.seconds - SPARE_SECONDS
        yield from _Lanes(call, backend).events(until)


class _Lanes:
    def __init__(self, call: Call, backend: Backend) -> None:
        scheduler: Scheduler[Run] = Scheduler(1, 0)
        self._scheduler = scheduler
        self._path, self._shared, self._read = call.path, call.shared, b""
        self._device = Device(backend)
        self._runs = [Run(request, 0.0, WakeCondition(), scheduler) for request in call.lanes]
        self._job = Job(self._runs, call.shared.pace)
        self._num_sent = [0] * len(self._runs)
        for run, until in zip(self._runs, call.until, strict=True):
            run.deadline = until
        scheduler.add(self._job)

    def events(self, until: float) -> Generator[News, None, None]:
        last_news = time.monotonic()
        try:
            while not self._job.is_finished:
                now = time.monotonic()
                self._apply_settings(now, until)
                rest = self._job.ready_at - now
                if not self._job.is_finished and rest <= 0:
                    turn = DeviceTurn("alone", (self._job.next_lane(),))
                    self._end(self._device.carry_out(turn))
                elif rest > 0:
                    time.sleep(min(rest, POLL_SECONDS))
                if time.monotonic() - last_news >= NEWS_SECONDS:
                    last_news = time.monotonic()
                    yield self._news()
            yield self._news()
        finally:
            for run in self._runs:
                self._device.release(run)

    def _apply_settings(self, now: float, until: float) -> None:
        try:
            if (content := self._path.read_bytes()) != self._read:
                self._read, self._shared = content, pickle.loads(content)
            is_stopped = self._shared.is_stopped
        except OSError:
            is_stopped = (True,) * len(self._runs)
        shared = self._shared
        self._job.pace = shared.pace
        for index, run in enumerate(self._runs):
            run.is_cancelled = is_stopped[index]
            if run.settings is not shared.settings[index]:
                run.settings = shared.settings[index]
        lanes = list(self._scheduler.lanes())
        ends = dict(overdue(lanes, now))
        if now >= until:
            ends = {run: End("deadline", OUT_OF_TIME) for run in lanes} | ends
        self._end(ends)

    def _end(self, ends: Mapping[Run, End]) -> None:
        for run, end in ends.items():
            self._device.release(run)
            run.add(end)
            self._scheduler.finish(self._job, run)

    def _news(self) -> News:
        events = []
        for lane, run in enumerate(self._runs):
            new = run.events_since(self._num_sent[lane])
            self._num_sent[lane] += len(new)
            events += [(lane, event) for event in new]
        return News(tuple(events))


def open_checkpoint(checkpoint: Checkpoint) -> CheckpointBackend:
    """Return a warmed-up backend in a newly forked process. It has no prefix cache, because the
    process may end before the next prompt.
    """
    import torch

    from mars_runtime.engine.costs import stored_costs

    torch.set_num_threads(1)  # The threads of the parent process do not exist after a fork.
    with torch.inference_mode():
        backend = CheckpointBackend(checkpoint, keeps=False)
        backend.warm_up_alone()
        backend.costs = stored_costs(checkpoint, 1)
        backend.synchronize()
    return backend
