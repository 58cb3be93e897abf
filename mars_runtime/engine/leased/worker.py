"""What travels to and from the process that has the device, and the worker that decodes there.

A worker keeps its backends from call to call, with caches, captured forwards and measured costs;
its process is forked from one that has none. Every run of a call has the device to itself, so it
needs no thread and no queue. A call and its news are pickled; steering goes through a table in
memory that both processes see, made before the fork, of which each call has a slot. One side
writes, the other reads before each forward and while a run rests. What is read is either whole or
not taken: every writing has a version and a checksum over both, and a reader who finds them at
odds keeps what it had and looks again before the next forward.
"""

from __future__ import annotations

import mmap
import pickle
import struct
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.engine.backend import Backend, CheckpointBackend
from mars_runtime.engine.device import Device
from mars_runtime.engine.request import Asked, Request
from mars_runtime.engine.run import Bell, Run, overdue
from mars_runtime.engine.scheduler import Job, Scheduler, Turn
from mars_runtime.events import End, Event
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.load import Checkpoint

START_SECONDS = 15.0
READ_RATE, WRITE_RATE = 1000.0, 25.0
"""Tokens per second of a lane that a device is asked for: chosen to be generous, not measured."""
SOLO_SECONDS, MOST_SECONDS = 60.0, 90.0
SLOT_BYTES = 8192
_VERSION = struct.Struct("<Q")
_HEAD = struct.Struct("<QII")  # version, length, checksum
NEWS_SECONDS = 0.03  # between two yields, each of which is pickled
LOOK_SECONDS = 0.02  # between two looks at the shared settings while a run rests
SPARE_SECONDS = 2.0  # left of what was asked for when a run is ended for lack of time
OUT_OF_TIME = "The time that was asked for on the GPU is over: ask for fewer tokens."
Open = Callable[[str, "ForwardCosts | None"], Backend]
"""A backend for a checkpoint by its name, ready to decode; given the costs that are known."""


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """What the lanes of a call are to obey: ``call``, whose they are; a pace for all; for each its
    settings and whether it is to end."""

    call: int
    pace: float
    settings: tuple[DecodeSettings, ...]
    is_stopped: tuple[bool, ...]


class LeaseError(RuntimeError):
    """A device was not lent, or was taken back; the message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Call:
    """The lanes of one job, decoded in one go.

    number: of this call; no two are alike. slot: where its shared settings come in; shared: the
    first ones.
    until: when each lane has to end, by the clock that all processes of a machine share.
    costs: of forwards on this device, where they were measured before.
    """

    number: int
    slot: int
    checkpoint: str
    lanes: tuple[Asked, ...]
    until: tuple[float, ...]
    shared: SharedSettings
    costs: ForwardCosts | None = None

    @property
    def seconds(self) -> float:
        """How long the device is asked for: what is not used is not charged, but what is asked for
        must be there, so it follows from the lengths. The rests of slow motion count."""
        asked = zip(self.lanes, self.shared.settings, strict=True)
        forwards = sum(_seconds(lane, settings.max_new_tokens) for lane, settings in asked)
        return min(MOST_SECONDS, START_SECONDS + forwards * (1 + self.shared.pace))


def _seconds(lane: Asked, num_tokens: int) -> float:
    if not isinstance(lane, Request):
        return SOLO_SECONDS
    return len(lane.prompt_ids) / READ_RATE + num_tokens / WRITE_RATE


@dataclass(frozen=True, slots=True)
class News:
    """Events by the numbers of their lanes, in order; now and then none at all, because whoever
    closes the stream is noticed when something comes. costs: as soon as they are measured."""

    events: tuple[tuple[int, Event], ...] = ()
    costs: ForwardCosts | None = None


Decode = Callable[[Call], Generator[News, None, None]]
"""Decodes a call where it stands."""

Lease = Callable[[Call], Generator[News, None, None]]
"""Decodes a call in another process, on a device that is lent to it; raises LeaseError."""


class SharedMemory:
    """``num_slots`` places for shared settings, in memory that forked processes share."""

    def __init__(self, num_slots: int = 64) -> None:
        self._memory = mmap.mmap(-1, num_slots * SLOT_BYTES)
        self._versions = [0] * num_slots
        self._free = list(range(num_slots))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """A slot that nobody has; None where all are taken."""
        with self._lock:
            return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        """Let another run have it."""
        with self._lock:
            self._free.append(slot)

    def write(self, slot: int, shared: SharedSettings) -> None:
        """Put new settings in the place of the old ones. One thread at a time writes to a slot."""
        content = pickle.dumps(shared)
        start = slot * SLOT_BYTES
        assert len(content) <= SLOT_BYTES - _HEAD.size, "settings of a few lanes are short"
        self._versions[slot] += 1
        version = self._versions[slot]
        self._memory[start + _HEAD.size : start + _HEAD.size + len(content)] = content
        _HEAD.pack_into(self._memory, start, version, len(content), _sum(version, content))

    def version(self, slot: int) -> int:
        """Of what was written last; cheap enough to ask before every forward."""
        number: int = _VERSION.unpack_from(self._memory, slot * SLOT_BYTES)[0]
        return number

    def read(self, slot: int) -> tuple[int, SharedSettings] | None:
        """What was written last, with its version; None while it is being written."""
        start = slot * SLOT_BYTES
        version, length, checksum = _HEAD.unpack_from(self._memory, start)
        content = self._memory[start + _HEAD.size : start + min(SLOT_BYTES, _HEAD.size + length)]
        if _sum(version, content) != checksum:
            return None
        shared: SharedSettings = pickle.loads(content)
        return version, shared


class Reader:
    """The shared settings of one call as they come in, beginning with those it was made with."""

    def __init__(self, slots: SharedMemory, slot: int, shared: SharedSettings) -> None:
        self._slots = slots
        self._slot = slot
        self._version = 0
        self._shared = shared

    def latest(self) -> SharedSettings:
        """In force now. A slot that has gone to another call says that this one is over."""
        if self._slots.version(self._slot) != self._version:
            found = self._slots.read(self._slot)
            if found is not None:
                self._version, shared = found
                is_over = shared.call != self._shared.call
                self._shared = _stopped(self._shared) if is_over else shared
        return self._shared


def _stopped(shared: SharedSettings) -> SharedSettings:
    every = (True,) * len(shared.settings)
    return SharedSettings(shared.call, shared.pace, shared.settings, every)


def _sum(version: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(_VERSION.pack(version)))


class Worker:
    """``decode`` is what a lease calls; ``open_backend`` is called once in a process for each
    checkpoint that is asked for there."""

    def __init__(self, slots: SharedMemory, open_backend: Open) -> None:
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
        yield from _Lanes(call, backend, Reader(self._slots, call.slot, call.shared)).events(until)


class _Lanes:
    """The runs of one call."""

    def __init__(self, call: Call, backend: Backend, reader: Reader) -> None:
        scheduler: Scheduler[Run] = Scheduler(1, 0)
        self._scheduler = scheduler
        self._reader = reader
        self._device = Device(backend)
        self._runs = [Run(asked, 0.0, Bell(), scheduler) for asked in call.lanes]
        self._job = Job(self._runs, call.shared.pace)
        self._num_told = [0] * len(self._runs)
        for run, until in zip(self._runs, call.until, strict=True):
            run.deadline = until
            run.join_job(self._job)
        scheduler.add(self._job)

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
        """Take over what is steered, and end what is to end."""
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
