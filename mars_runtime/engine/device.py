"""Carries out the turns of the scheduler on the device and measures their time. Only the worker
thread uses this module.

Runs that share a forward pass each get its whole seconds, because each waited that long. Prefill
includes copies from the prefix cache. Not timed: moving, allocating and storing rows, and checks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mars_runtime.decoders.event_stream import EventStream
from mars_runtime.decoders.prefix_cache import grant_alike
from mars_runtime.engine.backend import PREFILL_ALONE, PREFILL_SHARED, Backend, sentence, where
from mars_runtime.engine.request import CustomDecoderRequest, Request
from mars_runtime.engine.run import Run
from mars_runtime.engine.scheduler import DeviceTurn
from mars_runtime.runs.events import FINAL, End, EndReason, Event, Prefill, Step
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.cursor import CursorBatch

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Device:
    def __init__(
        self,
        backend: Backend,
        in_force: Callable[[DecodeSettings], DecodeSettings] = lambda settings: settings,
    ) -> None:
        """in_force: returns the settings that apply to a run that shares forward passes."""
        self._backend = backend
        self._in_force = in_force
        self._batch: CursorBatch | None = None
        self._decoders: dict[Run, EventStream] = {}
        self._numbers: dict[Run, int] = {}
        self._runs: dict[int, Run] = {}
        self._num_joined = 0

    def carry_out(self, turn: DeviceTurn[Run]) -> dict[Run, End]:
        """Carry out the turn and return the End of each run that ended with it. Does not raise."""
        try:
            if turn.kind == "step":
                return self._step(turn.lanes)
            (run,) = turn.lanes
            return (
                self._exclusive_step(run)
                if turn.kind == "alone"
                else self._prefill(run, turn.is_waited_for)
            )
        except Exception as error:
            # Logged as text, because a traceback object would keep its tensors alive.
            _log.error("A forward pass failed\n%s", where(error))
            return {run: End("error", sentence(error)) for run in self._affected(turn, error)}

    def release(self, run: Run) -> None:
        decoder = self._decoders.pop(run, None)
        number = self._numbers.pop(run, None)
        try:
            if number is not None and self._batch is not None:
                del self._runs[number]
                self._batch.drop(number)
            if decoder is not None:
                decoder.close()
        except Exception as error:
            _log.error("Releasing a run failed\n%s", where(error))

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        started = time.perf_counter_ns()
        result = work()
        self._backend.synchronize()
        return result, (time.perf_counter_ns() - started) / 1e9

    def _exclusive_step(self, run: Run) -> dict[Run, End]:
        if run not in self._decoders:
            self._open(run)
        decoder = self._decoders[run]
        event, seconds = self._timed(lambda: next(decoder, None))
        if event is None:
            return {run: _end_of(run)}
        assert not isinstance(event, End), "only the engine ends runs"
        if isinstance(event, Step) and _is_checked(run):
            event = decoder.checked(event)
        _record(run, replace(event, seconds=seconds), seconds)
        if isinstance(run.request, CustomDecoderRequest) or not isinstance(event, Step):
            return {}
        return {run: _end_of(run)} if event.rows[0].stop in FINAL else {}

    def _open(self, run: Run) -> None:
        """Create the decoders of a run and of the other lanes in its race.

        Lanes of a race are compared, so all reuse the same number of cached prompt tokens. A single
        exclusive run is timed and reuses nothing.
        """
        lanes = [lane for lane in run.job.lanes if not lane.is_finished]
        if len(lanes) == 1 or not all(_reuses(lane) for lane in lanes):
            self._decoders[run] = self._decoder(run)
            return
        self._decoders |= {lane: self._decoder(lane) for lane in lanes}
        hits = [hit for lane in lanes if (hit := self._decoders[lane].hit) is not None]
        if len(hits) == len(lanes):
            grant_alike(hits)

    def _decoder(self, run: Run) -> EventStream:
        self._backend.begin_run()
        return EventStream.of(self._backend.decode(run.request, lambda: run.settings))

    def _prefill(self, run: Run, is_waited_for: bool) -> dict[Run, End]:
        """The chunk is short if other runs wait to decode."""
        batch, request = self._open_batch(), run.request
        assert isinstance(request, Request), "a shared run has a Request"
        if run not in self._numbers:
            self._num_joined += 1
            self._backend.begin_run()
            batch.join(self._num_joined, request.prompt_ids, lambda: self._in_force(run.settings))
            if not request.reuses:
                batch.skip_prefix_cache(self._num_joined)
            self._numbers[run] = self._num_joined
            self._runs[self._num_joined] = run
        number, chunk = self._numbers[run], PREFILL_SHARED if is_waited_for else PREFILL_ALONE
        num_left, seconds = self._timed(lambda: batch.prefill(number, chunk))
        run.job.spend(run, seconds, time.monotonic(), has_rest=False)
        if not num_left:
            run.is_read = True
            reused = batch.num_reused(number)
            run.add(Prefill(len(request.prompt_ids) - 1, run.clock, num_reused=reused))
        return {}

    def _step(self, runs: tuple[Run, ...]) -> dict[Run, End]:
        batch = self._open_batch()
        numbers = [self._numbers[run] for run in runs]
        batch.gather(numbers)
        step, seconds = self._timed(lambda: batch.step(numbers))
        step = batch.checked(step, [self._numbers[run] for run in runs if _is_checked(run)])
        ends = {}
        for row in step.rows:
            run = self._runs[row.row]
            run.num_sharing = len(runs) - 1
            _record(run, Step((replace(row, row=0),), seconds), seconds)
            if row.stop in FINAL:  # The batch has removed the row.
                del self._runs[self._numbers.pop(run)]
                ends[run] = _end_of(run)
        batch.release_ended()
        return ends

    def _open_batch(self) -> CursorBatch:
        if self._batch is None:
            self._batch = self._backend.batch()
        return self._batch

    def _affected(self, turn: DeviceTurn[Run], error: Exception) -> list[Run]:
        """Return the runs of the rows that an error names, or all runs of the turn."""
        from mars_runtime.errors import DecodeError

        named = error.rows if turn.kind == "step" and isinstance(error, DecodeError) else ()
        return [self._runs[number] for number in named if number in self._runs] or list(turn.lanes)


def _reuses(run: Run) -> bool:
    return isinstance(run.request, Request) and run.request.reuses


def _is_checked(run: Run) -> bool:
    return isinstance(run.request, Request) and run.request.is_checked


def _record(run: Run, event: Event, seconds: float) -> None:
    run.add(event)
    run.job.spend(run, seconds, time.monotonic(), has_rest=isinstance(event, Step))


def _end_of(run: Run) -> End:
    steps = [event for event in run.events_since(0) if isinstance(event, Step)]
    stops = {row.row: row.stop for step in steps for row in step.rows}
    if not stops or not FINAL.issuperset(stops.values()):
        return End("error", "The decoder stopped before the end of the answer: run it again.")
    reasons: tuple[EndReason, ...] = ("limit", "repeats", "eos")
    return End(next(reason for reason in reasons if reason in stops.values()))
