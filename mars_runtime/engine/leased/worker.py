"""Messages to and from the process that uses the leased device, and the worker that decodes there.

A worker stores its backends between calls, with their caches, captured forward passes and measured
costs. Every run of a call uses the device exclusively, so no thread or queue is needed. A call and
its news are pickled. Settings are sent through memory that was allocated before the fork, in which
each call has a slot. The worker reads it before each forward pass and while a run pauses. If the
checksum does not match, a write is in progress and the previous settings remain.
"""

from __future__ import annotations

import mmap
import pickle
import struct
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
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
SLOT_BYTES = 8192
_HEAD = struct.Struct("<II")  # header of a slot: length and checksum of its content
NEWS_SECONDS = 0.03  # minimum seconds between two messages, because each one is pickled
POLL_SECONDS = 0.02  # seconds between two reads of the shared settings while a run pauses
SPARE_SECONDS = 2.0  # runs are ended this many seconds before the requested time is over
OUT_OF_TIME = "The requested GPU time is used up. Request fewer tokens."
Open = Callable[[str, "ForwardCosts | None"], Backend]
"""Returns a backend that is ready to decode, for a checkpoint's name and its costs if known."""


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """Current settings of the lanes of a call, with the number of the call.

    is_stopped: for each lane, whether it must end.
    """

    call: int
    pace: float
    settings: tuple[DecodeSettings, ...]
    is_stopped: tuple[bool, ...]


class LeaseError(RuntimeError):
    """A device was not leased, or was withdrawn; the message is for the visitor."""


@dataclass(frozen=True, slots=True)
class Call:
    """The lanes of one job, decoded in one call of a lease.

    number: unique number of the call. slot: slot of its settings in shared memory.
    until: time at which each lane must end, on the monotonic clock of the machine.
    shared: the initial settings. costs: None if not measured yet.
    """

    number: int
    slot: int
    checkpoint: str
    lanes: tuple[AnyRequest, ...]
    until: tuple[float, ...]
    shared: SharedSettings
    costs: ForwardCosts | None = None

    @property
    def seconds(self) -> float:
        """Device time to request. Unused time is not charged, but the requested time must be
        available.
        """
        pairs = zip(self.lanes, self.shared.settings, strict=True)
        forwards = sum(_seconds(lane, settings.max_new_tokens) for lane, settings in pairs)
        return min(MOST_SECONDS, START_SECONDS + forwards * (1 + self.shared.pace))


def _seconds(lane: AnyRequest, num_tokens: int) -> float:
    if not isinstance(lane, Request):
        return CUSTOM_DECODER_SECONDS
    return len(lane.prompt_ids) / PREFILL_RATE + num_tokens / DECODE_RATE


@dataclass(frozen=True, slots=True)
class News:
    """Events as (lane number, event), in order, and the costs once they are measured.

    An empty News lets the consumer close the stream, which it can do only when it receives
    something.
    """

    events: tuple[tuple[int, Event], ...] = ()
    costs: ForwardCosts | None = None


Decode = Callable[[Call], Generator[News, None, None]]
"""Decodes a call in this process."""

Lease = Callable[[Call], Generator[News, None, None]]
"""Decodes a call in another process, on a device leased to it; raises LeaseError."""


class SharedMemory:
    """``num_slots`` slots for settings, in memory shared with forked processes."""

    def __init__(self, num_slots: int = 64) -> None:
        self._memory = mmap.mmap(-1, num_slots * SLOT_BYTES)
        self._free = list(range(num_slots))
        self._lock = threading.Lock()

    def acquire(self) -> int | None:
        """Reserve a free slot and return its number, or None if all slots are in use."""
        with self._lock:
            return self._free.pop() if self._free else None

    def release(self, slot: int) -> None:
        with self._lock:
            self._free.append(slot)

    def write(self, slot: int, shared: SharedSettings) -> None:
        """Replace the settings in a slot. Only one thread at a time may write to a slot."""
        content = pickle.dumps(shared)
        start = slot * SLOT_BYTES
        assert len(content) <= SLOT_BYTES - _HEAD.size, "the settings do not fit a slot"
        self._memory[start + _HEAD.size : start + _HEAD.size + len(content)] = content
        head = _HEAD.pack(len(content), zlib.crc32(content))
        self._memory[start : start + _HEAD.size] = head

    def head(self, slot: int) -> bytes:
        """Return what changes with every new content, fast enough for every forward pass."""
        return self._memory[slot * SLOT_BYTES : slot * SLOT_BYTES + _HEAD.size]

    def read(self, slot: int, head: bytes) -> SharedSettings | None:
        """Return the settings with this head; None while a write is in progress."""
        length, checksum = _HEAD.unpack(head)
        start = slot * SLOT_BYTES + _HEAD.size
        content = self._memory[start : start + min(SLOT_BYTES - _HEAD.size, length)]
        return pickle.loads(content) if content and zlib.crc32(content) == checksum else None


class Reader:
    """Reads the settings of one call from shared memory; the call contains the initial ones."""

    def __init__(self, slots: SharedMemory, slot: int, shared: SharedSettings) -> None:
        self._slots = slots
        self._slot = slot
        self._head = bytes(_HEAD.size)
        self._shared = shared

    def latest(self) -> SharedSettings:
        """Return the current settings. If another call now uses the slot, they stop all lanes."""
        head = self._slots.head(self._slot)
        written = self._slots.read(self._slot, head) if head != self._head else None
        if written is not None:
            stopped = replace(self._shared, is_stopped=(True,) * len(self._shared.settings))
            self._head = head
            self._shared = written if written.call == self._shared.call else stopped
        return self._shared


class Worker:
    """Decodes the calls of leases. open_backend: called once per process and checkpoint."""

    def __init__(self, slots: SharedMemory, open_backend: Open) -> None:
        self._slots = slots
        self._open = open_backend
        self._backends: dict[str, Backend] = {}  # by name of the checkpoint

    def decode(self, call: Call) -> Generator[News, None, None]:
        """Yield the events of the call as they happen, with one End for each lane."""
        began = time.monotonic()
        backend = self._backends.get(call.checkpoint)
        if backend is None:
            backend = self._open(call.checkpoint, call.costs)
            self._backends[call.checkpoint] = backend
        yield News(costs=backend.costs)
        until = began + call.seconds - SPARE_SECONDS
        yield from _Lanes(call, backend, Reader(self._slots, call.slot, call.shared)).events(until)


class _Lanes:
    def __init__(self, call: Call, backend: Backend, reader: Reader) -> None:
        scheduler: Scheduler[Run] = Scheduler(1, 0)
        self._scheduler = scheduler
        self._reader = reader
        self._device = Device(backend)
        self._runs = [Run(request, 0.0, WakeCondition(), scheduler) for request in call.lanes]
        self._job = Job(self._runs, call.shared.pace)
        self._num_sent = [0] * len(self._runs)
        for run, until in zip(self._runs, call.until, strict=True):
            run.deadline = until
        scheduler.add(self._job)

    def events(self, until: float) -> Generator[News, None, None]:
        """Yield all events. Lanes that have not finished by ``until`` are ended then."""
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
        """Apply changed settings, and end lanes that are cancelled or out of time."""
        shared = self._reader.latest()
        self._job.pace = shared.pace
        for index, run in enumerate(self._runs):
            run.is_cancelled = shared.is_stopped[index]
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


def open_checkpoint(checkpoint: Checkpoint, costs: ForwardCosts | None) -> CheckpointBackend:
    """Return a warmed-up backend in a newly forked process.

    There is no prefix cache, because the process may end before the next prompt.
    """
    import torch

    from mars_runtime.engine.costs import measure_costs

    torch.set_num_threads(1)  # The threads of the parent process do not exist after a fork.
    with torch.inference_mode():
        backend = CheckpointBackend(checkpoint, keeps=False)
        backend.warm_up_alone()
        backend.costs = measure_costs(checkpoint) if costs is None else costs
        backend.synchronize()
    return backend
