"""Engine in this process: serves many runs on one model with one worker thread.

Only the worker thread uses the device and measures time. If it dies or hangs in a forward pass,
every run ends with an error and ``is_alive`` becomes false.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.engine.backend import Backend, CheckpointBackend, where
from mars_runtime.engine.busy import BusyRule, next_level
from mars_runtime.engine.device import Device
from mars_runtime.engine.request import (
    DEFAULT_DEADLINE,
    AnyRequest,
    CustomDecoderRequest,
    Request,
    RequestError,
)
from mars_runtime.engine.run import Observer, Run, WakeCondition, check_pace, overdue
from mars_runtime.engine.scheduler import DeviceTurn, FullError, Job, Scheduler
from mars_runtime.errors import MarsError
from mars_runtime.runs.events import End
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.engine.request import CustomDecode
    from mars_runtime.model.load import Checkpoint

# After these seconds of a turn, or of the warm-up, the worker counts as hanging.
MAX_TURN_SECONDS, MAX_WARM_UP_SECONDS = 180.0, 900.0
HEARTBEAT_SECONDS = 1.0
CLOSE_SECONDS = 2.0  # that ``close`` waits for an unfinished warm-up
EXIT_SECONDS = 60.0  # that the exit of the process waits for the worker's last forward pass
BUSY = "The server is busy: {} runs are active or queued. Try again in a moment."
DEAD = "The engine stopped unexpectedly: try again in a moment."
FORKED = (
    "The engine does not exist in this forked process, because threads do not survive a fork: load "
    "the model in each process, started with multiprocessing's method spawn."
)
MAX_LANES = 8
_log = logging.getLogger(__name__)
R = TypeVar("R", bound=Run)


class EngineError(MarsError, RuntimeError):
    """The engine cannot accept a request."""


class EngineBusy(EngineError):  # noqa: N818 (a state, in the words of the page)
    """The queue of waiting runs is full."""


class BaseEngine(ABC):
    def __init__(self, max_runs: int, max_waiting: int) -> None:
        self._scheduler: Scheduler[Run] = Scheduler(max_runs, max_waiting)
        self._observers: list[Observer] = []
        self._condition = WakeCondition()
        self._is_closed = False
        self._why_over = "The engine was closed: start the program again."

    @property
    def num_running(self) -> int:
        """Number of active jobs (runs, races, custom decoder runs)."""
        return self._scheduler.num_active

    @property
    def num_waiting(self) -> int:
        return self._scheduler.num_waiting

    @property
    def max_running(self) -> int:
        return self._scheduler.max_active

    @property
    def busy_limits(self) -> tuple[float, int]:
        """The limits of tau, and of B in lossless mode, that the queue imposes."""
        return 1.0, MAX_BLOCK_SIZE

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    @property
    def is_alive(self) -> bool:
        return not self._is_closed

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Maximum number of tokens of a prompt and its answer together."""

    def is_ready(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the warm-up and return whether it is complete."""
        return True

    @abstractmethod
    def costs(self) -> ForwardCosts | None:
        """Block until the warm-up is complete; return the costs of forward passes on this device,
        or None if they were not measured.
        """

    @abstractmethod
    def close(self) -> None:
        """End all runs and the engine within one forward pass."""

    @abstractmethod
    def _check(self, request: AnyRequest) -> None:
        """Raise RequestError or EngineError if the request cannot be served."""

    @abstractmethod
    def _serve(
        self, requests: Sequence[AnyRequest], pace: float, is_shared: bool = False
    ) -> Sequence[Run]:
        """Start runs that are scheduled together."""

    def _enqueue(
        self, kind: type[R], requests: Sequence[AnyRequest], pace: float, is_shared: bool = False
    ) -> list[R]:
        for request in requests:
            self._check(request)
        now, parts = time.monotonic(), (self._condition, self._scheduler, self._observers)
        runs = [kind(request, now, *parts) for request in requests]
        job: Job[Run] = Job(runs, check_pace(pace), is_shared, requests[0].owner)
        with self._condition:
            if self._is_closed:
                raise EngineError(self._why_over)
            try:
                self._scheduler.add(job)
            except FullError:
                raise EngineBusy(BUSY.format(len(self._scheduler))) from None
            self._condition.wake()
        return runs

    def _end(self, run: Run, end: End) -> None:
        """Call with the lock held."""
        run.add(end)
        self._scheduler.finish(run.job, run)
        run.announce_end()

    def submit(self, request: Request, pace: float = 0.0, *, is_alone: bool = False) -> Run:
        """Start a run, which shares forward passes with other runs unless ``is_alone``.

        pace: after each forward pass the run pauses ``pace`` times as long (slow motion, not
            timed).
        is_alone: for timing; the prefix cache is not used either.

        Raises EngineBusy, EngineError, RequestError or SettingsError.
        """
        is_alone = is_alone or request.settings.facts.is_alone
        return self._serve([request], pace, is_shared=not is_alone)[0]

    def run_decoder(
        self,
        decode: CustomDecode,
        settings: DecodeSettings,
        *,
        deadline: float = DEFAULT_DEADLINE,
        pace: float = 0.0,
        owner: str = "",
    ) -> Run:
        """Start a run of any decoder, which uses the device exclusively. The worker thread calls
        ``decode``. The run ends with ``limit`` if any row did, else with ``repeats`` if any did,
        else with ``eos``. Raises the same errors as ``submit``.
        """
        return self._serve([CustomDecoderRequest(decode, settings, deadline, owner)], pace)[0]

    def race(self, requests: Sequence[AnyRequest], pace: float = 0.0) -> Sequence[Run]:
        """Start runs that take turns: the one with the least device time so far is next. They share
        no forward passes and reuse the same number of cached prompt tokens. Raises the same errors.
        """
        if not 1 <= len(requests) <= MAX_LANES:
            raise RequestError(f"A race must have 1 to {MAX_LANES} runs, got {len(requests)}.")
        first = requests[0]
        if len(requests) == 1 and isinstance(first, Request):
            return [self.submit(first, pace)]
        return self._serve(requests, pace)


class Engine(BaseEngine):
    """Close the engine, or use it in a ``with`` statement.

    max_runs: maximum number of active jobs; lower if memory is short. max_waiting: of queued jobs.
    max_turn_seconds: after these seconds of a turn the worker counts as hanging.
    busy: lowers tau or B of runs that share forward passes while others wait.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | Backend,
        max_runs: int = 4,
        max_waiting: int = 16,
        max_turn_seconds: float = MAX_TURN_SECONDS,
        busy: BusyRule | None = None,
    ) -> None:
        if not isinstance(checkpoint, Backend):
            checkpoint = CheckpointBackend(checkpoint)
        self._backend = checkpoint
        super().__init__(self._backend.reserve(max_runs), max_waiting)
        self._next_deadline = math.inf
        self._busy = busy
        self._busy_level = 0  # set only by the worker thread
        self._process = os.getpid()
        self._is_over = threading.Event()
        self._is_ready = threading.Event()
        self._max_turn_seconds = max_turn_seconds
        self._must_beat_by = math.inf  # when the worker's current turn must be finished
        self._device = Device(self._backend, self._in_force)  # used only by the worker thread
        self._worker = threading.Thread(target=self._work, name="mars-engine", daemon=True)
        self._worker.start()
        self._watcher = threading.Thread(target=self._watch, name="mars-watch", daemon=True)
        self._watcher.start()
        atexit.register(self._end_worker)

    @property
    def is_alive(self) -> bool:
        return not self._is_closed and not self._is_forked

    @property
    def _is_forked(self) -> bool:
        """A forked process has no worker, and its locks may be held forever."""
        return os.getpid() != self._process

    @property
    def capacity(self) -> int:
        return self._backend.capacity

    def _serve(
        self, requests: Sequence[AnyRequest], pace: float, is_shared: bool = False
    ) -> Sequence[Run]:
        return self._enqueue(Run, requests, pace, is_shared)

    def _check(self, request: AnyRequest) -> None:
        self.check_not_forked()
        self._backend.check(request)

    @property
    def busy_limits(self) -> tuple[float, int]:
        if self._busy is None:
            return super().busy_limits
        level = self._busy_level
        return self._busy.max_tau(level), self._busy.max_block_size(level)

    def _in_force(self, settings: DecodeSettings) -> DecodeSettings:
        return settings if self._busy is None else self._busy.apply(settings, self._busy_level)

    def check_not_forked(self) -> None:
        """Raise EngineError in a forked process. Takes no lock, so call it before what does."""
        if self._is_forked:
            raise EngineError(FORKED)

    def is_ready(self, timeout: float) -> bool:
        self.check_not_forked()
        return self._is_ready.wait(timeout)

    def costs(self) -> ForwardCosts | None:
        self.check_not_forked()
        self._is_ready.wait()
        return self._backend.costs

    def close(self) -> None:
        """During the warm-up, wait at most ``CLOSE_SECONDS``; do nothing in a forked process."""
        if self._is_forked:
            return
        with self._condition:
            self._is_closed = True
            self._condition.wake()
        self._backend.stop_preparing()
        if threading.current_thread() is not self._worker:
            self._is_over.wait(None if self._is_ready.is_set() else CLOSE_SECONDS)
            for thread in (self._worker, self._watcher):
                thread.join(HEARTBEAT_SECONDS)  # with a timeout, because the worker may hang
        if not self._worker.is_alive():
            atexit.unregister(self._end_worker)

    def _end_worker(self) -> None:
        """Wait for the worker at exit: ending a daemon thread in a native call unwinds the frames
        of PyTorch, which aborts the process.
        """
        self.close()
        if not self._is_forked:
            self._is_over.wait(EXIT_SECONDS)
            self._worker.join(HEARTBEAT_SECONDS)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _work(self) -> None:
        """Every run gets an End even if the thread fails."""
        last = End("error", DEAD)
        try:
            self._prepare()
            while (turn := self._next_turn()) is not None:
                now = time.monotonic()
                self._must_beat_by = now + self._max_turn_seconds
                self._carry_out(turn, now)
                self._must_beat_by = math.inf
            last = End("cancelled", "The server was stopped.")
        except BaseException as error:
            self._why_over = DEAD
            _log.critical("The worker died\n%s", where(error))
        finally:
            self._must_beat_by = math.inf
            self._is_ready.set()
            with self._condition:
                self._is_closed = True
                for run in list(self._scheduler.lanes()):
                    self._finish(run, last)
            self._is_over.set()

    def _carry_out(self, turn: DeviceTurn[Run], now: float) -> None:
        for run in turn.lanes:
            run.began = now if run.began is None else run.began
        ends = self._device.carry_out(turn)
        self._must_beat_by = math.inf
        with self._condition:
            for run, end in ends.items():
                self._finish(run, end)

    def _prepare(self) -> None:
        self._must_beat_by = time.monotonic() + MAX_WARM_UP_SECONDS
        try:
            self._backend.prepare()
        except Exception as error:
            if not self._is_closed:
                _log.error("The warm-up failed; runs are served without it\n%s", where(error))
        self._must_beat_by = math.inf
        self._is_ready.set()

    def _watch(self) -> None:
        """End the runs of a hanging worker, but keep their device memory, which it may still use.

        The delay with which this thread wakes up is subtracted: the process was suspended (a paused
        container, a sleeping laptop).
        """
        beat = min(HEARTBEAT_SECONDS, self._max_turn_seconds)
        deadline, paused, checked = math.inf, 0.0, time.monotonic()
        while not self._is_over.wait(beat):
            now, must_beat_by = time.monotonic(), self._must_beat_by
            overslept, checked = max(0.0, now - checked - beat), now
            paused = overslept + (paused if must_beat_by == deadline else 0.0)
            deadline = must_beat_by
            if now < deadline + paused:
                continue
            _log.critical("The worker hangs; ending its runs")
            with self._condition:
                self._is_closed, self._why_over = True, DEAD
                for run in list(self._scheduler.lanes()):
                    self._end(run, End("error", DEAD))
            self._is_ready.set()
            self._is_over.set()

    def _next_turn(self) -> DeviceTurn[Run] | None:
        """Sleep until a turn is due; return None once the engine is closed."""
        with self._condition:
            while not self._is_closed:
                now = time.monotonic()
                if self._condition.has_news or now >= self._next_deadline:
                    self._end_overdue(now)
                self._busy_level = next_level(self._busy_level, self.num_waiting, self.max_running)
                turn = self._scheduler.next_turn(now)
                if turn is not None:
                    return turn
                wake = self._scheduler.next_wake()
                self._condition.wait(None if wake == math.inf else max(0.0, wake - now))
            return None

    def _end_overdue(self, now: float) -> None:
        self._condition.has_news = False
        for run, end in overdue(self._scheduler.lanes(), now):
            self._finish(run, end)
        self._next_deadline = self._scheduler.next_deadline()

    def _finish(self, run: Run, end: End) -> None:
        """Call with the lock held."""
        self._device.release(run)
        self._end(run, end)
