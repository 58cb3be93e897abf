"""To its callers an engine like any other; its runs are decoded by another machine.

Every job is one request, whose stream a thread of its own reads to the end. A machine that is lost
ends the runs that it was at with a sentence; the next run asks again. Knows no page.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mars_runtime.engine.backend import where
from mars_runtime.engine.base import BaseEngine
from mars_runtime.engine.engine import EngineError
from mars_runtime.engine.request import Asked, Request, RequestError, Solo
from mars_runtime.engine.run import Bell, Run, check_pace
from mars_runtime.engine.scheduler import Job, Scheduler
from mars_runtime.events import End, Event, Prefill, Step
from mars_runtime.serving.lanes import wire_header
from mars_runtime.serving.remote.machine import LOST, STRANGE, Machine, Stream
from mars_runtime.serving.remote.run import RemoteRun, Tiller
from mars_runtime.trace import TraceError, TraceWriter
from mars_runtime.trace_reader import TraceReader

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts

CLOSED = "The page was closed: start the program again."
NO_BATCH = "Batches run only where the page runs: this page's model is on another machine."
_log = logging.getLogger(__name__)


class RemoteEngine(BaseEngine):
    """Runs of one checkpoint on ``machine``. capacity: as it tells."""

    def __init__(self, machine: Machine, checkpoint: str, capacity: int) -> None:
        self._machine = machine
        self._checkpoint = checkpoint
        self._capacity = capacity
        self._is_closed = False
        self._going: set[RemoteRun] = set()

    @property
    def is_alive(self) -> bool:
        """Whether runs are begun; a machine that was lost may come back."""
        return not self._is_closed

    @property
    def max_running(self) -> int:
        """0: places are dealt out there, among all who ask."""
        return 0

    @property
    def capacity(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self._capacity

    def costs(self) -> ForwardCosts | None:
        """None: what forwards cost there is among the facts of its checkpoint."""
        return None

    def close(self) -> None:
        """End every run. A second call does nothing."""
        self._is_closed = True
        for run in list(self._going):
            run.cancel()

    def _serve(self, asked: Sequence[Asked], pace: float, is_shared: bool = False) -> list[Run]:
        if self._is_closed:
            raise EngineError(CLOSED)
        posted = self._posted(asked, check_pace(pace), is_shared)
        session = uuid.uuid4().hex
        with ExitStack() as stack:
            stream = stack.enter_context(self._machine.begin(posted, session))
            bell = Bell()
            runs = _new_runs(asked, pace, bell)
            self._going.update(runs)
            follow = threading.Thread(
                target=self._follow, args=(stack.pop_all(), stream, session, runs), daemon=True
            )
            follow.start()
        return list(runs)

    def _posted(self, asked: Sequence[Asked], pace: float, is_shared: bool) -> Mapping[str, Any]:
        """Raises RequestError for what cannot travel: a decoder is a program."""
        if any(isinstance(each, Solo) for each in asked):
            raise RequestError(NO_BATCH)
        return {
            "model": self._checkpoint,
            "lanes": [_lane(each) for each in asked if isinstance(each, Request)],
            "pace": pace,
            "is_alone": not is_shared,
        }

    def _follow(
        self, stack: ExitStack, stream: Stream, session: str, runs: Sequence[RemoteRun]
    ) -> None:
        """A job to its end."""
        helm = Helm(self._machine, stream.name, session)
        tiller = Tiller(runs, helm.steer, helm.stop)
        for run in runs:
            run.tiller = tiller
        tiller.turn()  # whatever was told before
        end = End("error", LOST)
        try:
            with stack:
                _read(stream, runs)
        except EngineError as error:
            end = End("error", str(error))
        except Exception as error:
            _log.error("a run on another machine failed\n%s", where(error))
        finally:
            tiller.let_go()
            for run in runs:
                _finish(run, End("cancelled") if run.is_cancelled else end)
            self._going.difference_update(runs)


class Helm:
    """Steers one run there; who moves a slider is not told that it came too late."""

    def __init__(self, machine: Machine, run: str, session: str) -> None:
        self._machine, self._run, self._session = machine, run, session

    def steer(self, changes: Mapping[str, Any]) -> None:
        """Change settings."""
        try:
            self._machine.steer(self._run, self._session, changes)
        except (EngineError, RequestError) as error:
            _log.info("a run was not steered: %s", error)

    def stop(self, lane: int) -> None:
        """End a lane."""
        try:
            self._machine.stop(self._run, self._session, lane)
        except (EngineError, RequestError) as error:
            _log.info("a run was not stopped: %s", error)


def _new_runs(asked: Sequence[Asked], pace: float, bell: Bell) -> list[RemoteRun]:
    scheduler: Scheduler[Run] = Scheduler(1, 0)
    runs = [RemoteRun(each, time.monotonic(), bell, scheduler) for each in asked]
    job: Job[Run] = Job(runs, check_pace(pace))
    for run in runs:
        run.join_job(job)
    scheduler.add(job)
    return runs


def _lane(request: Request) -> dict[str, Any]:
    return {
        **asdict(request.settings),
        "prompt_ids": request.prompt_ids,
        "seconds": math.ceil(request.deadline),
        "is_checked": request.is_checked,
    }


def _read(stream: Stream, runs: Sequence[RemoteRun]) -> None:
    """Until every lane is over. Raises EngineError."""
    lanes = [_reader(run) for run in runs]
    try:
        for name, data in stream:
            if name == "state":
                for run in runs:
                    run.learn(json.loads(data))
            elif name:
                lanes[int(name)].feed(data)
                for event in lanes[int(name)].new():
                    _tell(runs[int(name)], event)
            if all(run.is_finished or run.is_cancelled for run in runs):
                return
    except (ValueError, LookupError, RecursionError) as error:
        raise EngineError(STRANGE) from error


class LaneReader:
    """The events of one lane, out of its lines."""

    def __init__(self, head: str) -> None:
        self._reader = TraceReader()
        self._reader.feed(head)
        self._num_read = 0

    def feed(self, line: str) -> None:
        """Raises TraceError."""
        self._reader.feed(line)

    def new(self) -> Sequence[Event]:
        """Since the last call."""
        events = self._reader.trace().events[self._num_read :]
        self._num_read += len(events)
        return events


def _reader(run: RemoteRun) -> LaneReader:
    return LaneReader(TraceWriter(wire_header(run.asked.settings), _no_bytes).header_line())


def _no_bytes(token: int) -> bytes:
    raise TraceError("the head of a lane names no token")


def _tell(run: RemoteRun, event: Event) -> None:
    if isinstance(event, End):
        is_wished = event.reason != "cancelled" or run.is_cancelled
        _finish(run, event if is_wished else End("error", LOST))  # it was closed there
        return
    if isinstance(event, (Prefill, Step)):
        run.clock += event.seconds
    run.add(event)


def _finish(run: RemoteRun, end: End) -> None:
    if not run.is_finished:
        run.add(end)
        run.is_finished = True
        run.announce_end()
