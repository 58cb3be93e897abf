"""Serves runs on a device that is lent for each of them: to its callers an engine like any other.

Every job is one call of a lease (``worker.py``), which decodes it in another process; a thread for
each, with the context of whoever asked, hands on what comes. Who may call is told by the same
scheduler as elsewhere, but jobs share no forward. Whoever cancels a run, or lets its time pass,
sees it end at once, whatever the other process is doing.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from mars_runtime.engine.backend import where
from mars_runtime.engine.base import BaseEngine
from mars_runtime.engine.engine import BUSY, EngineBusy, EngineError
from mars_runtime.engine.leased.worker import Call, Lease, LeaseError, SharedMemory, SharedSettings
from mars_runtime.engine.request import Asked
from mars_runtime.engine.run import Bell, Observer, Run, check_pace, overdue
from mars_runtime.engine.scheduler import FullError, Job, Scheduler
from mars_runtime.events import End, Event, Prefill, Step

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts

LOST = "The GPU was lost in the middle of the answer: run it again."
CLOSED = "The engine was closed: start the program again."
_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class LeasedEngine(BaseEngine):
    """Runs of one checkpoint; ``max_runs`` ask for a device at once, ``max_waiting`` wait behind.

    checkpoint: its name, by which the other process knows it. check: raises RequestError for what
    cannot be served. slots: made before any process was forked.
    """

    def __init__(
        self,
        checkpoint: str,
        lease: Lease,
        slots: SharedMemory,
        check: Callable[[Asked], None],
        capacity: int,
        max_runs: int = 4,
        max_waiting: int = 16,
    ) -> None:
        self._checkpoint = checkpoint
        self._lease = lease
        self._slots = slots
        self._check = check
        self._capacity = capacity
        self._costs: ForwardCosts | None = None
        self._bell = Bell()
        self._scheduler: Scheduler[Run] = Scheduler(max_runs, max_waiting)
        self._observers: list[Observer] = []
        self._is_closed = False
        self._keeper = threading.Thread(target=self._keep, name="mars-leases", daemon=True)
        self._keeper.start()

    @property
    def is_alive(self) -> bool:
        """Whether requests are served; a process that dies ends its own runs alone."""
        return not self._is_closed

    @property
    def capacity(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return self._capacity

    def costs(self) -> ForwardCosts | None:
        """What forwards cost on the device; None until it was lent once."""
        return self._costs

    def close(self) -> None:
        """End every run. A second call does nothing."""
        with self._bell:
            self._is_closed = True
            self._bell.ring()
        self._keeper.join()

    def _serve(self, asked: Sequence[Asked], pace: float, is_shared: bool = False) -> list[Run]:
        for each in asked:
            self._check(each)
        now = time.monotonic()
        runs = [
            LeasedRun(each, now, self._bell, self._scheduler, self._observers) for each in asked
        ]
        job: Job[Run] = Job(runs, check_pace(pace), owner=asked[0].owner)
        for run in runs:
            run.join_job(job)
        with self._bell:
            if self._is_closed:
                raise EngineError(CLOSED)
            slot = self._slots.take()
            try:
                if slot is None:
                    raise FullError
                self._scheduler.add(job)
            except FullError:
                if slot is not None:
                    self._slots.give_back(slot)
                raise EngineBusy(BUSY.format(len(self._scheduler))) from None
            self._bell.ring()
        context = copy_context()  # of whose time on the device it is, and which page asked
        follow = threading.Thread(
            target=context.run, args=(self._follow, job, runs, slot), name="mars-lease", daemon=True
        )
        follow.start()
        return list(runs)

    def _follow(self, job: Job[Run], runs: Sequence[LeasedRun], slot: int) -> None:
        """A job from its turn to its end."""
        end = End("error", LOST)
        try:
            with self._bell:
                self._bell.wait_for(lambda: job.is_finished or not self._scheduler.place(job))
            if not job.is_finished:
                self._call(runs, slot)
        except LeaseError as error:
            end = End("error", str(error))
        except Exception as error:
            _log.error("A leased run failed\n%s", where(error))
        finally:
            with self._bell:
                self._end_all(runs, end)
            self._slots.give_back(slot)

    def _call(self, runs: Sequence[LeasedRun], slot: int) -> None:
        """Decode these runs in the other process, to its end: what comes of runs that were ended
        here is thrown away."""
        number = next(_numbers)
        writer = SharedWriter(number, runs, partial(self._slots.write, slot))
        asked = tuple(run.asked for run in runs)
        until = tuple(run.deadline for run in runs)
        call = Call(
            number, slot, self._checkpoint, asked, until, writer.write_settings(), self._costs
        )
        try:
            with closing(self._lease(call)) as stream:
                for news in stream:
                    self._costs = news.costs or self._costs
                    for lane, event in news.events:
                        self._tell(runs[lane], event)
        finally:
            writer.close()

    def _tell(self, run: LeasedRun, event: Event) -> None:
        run.is_begun = True
        if isinstance(event, End):
            with self._bell:
                self._end_all([run], event)
            return
        if isinstance(event, (Prefill, Step)):
            run.clock += event.seconds
        run.add(event)

    def _keep(self) -> None:
        """Ends what was cancelled or is out of time, whatever the other processes do."""
        with self._bell:
            while not self._is_closed:
                now = time.monotonic()
                for run, end in overdue(list(self._scheduler.lanes()), now):
                    self._end_all([run], end)
                left = self._scheduler.next_deadline() - now
                self._bell.wait(min(max(left, 0.0), threading.TIMEOUT_MAX))
            for run in list(self._scheduler.lanes()):
                self._end_all([run], End("cancelled", "The engine was closed."))
                run.cancel()

    def _end_all(self, runs: Sequence[Run], end: End) -> None:
        """The runs among these that go on are over. The bell is held."""
        for run in runs:
            if not run.is_finished:
                run.add(end)
                self._scheduler.finish(run.job, run)
                run.announce_end()
        self._bell.notify_all()


class LeasedRun(Run):
    """is_begun: whether anything has come from the device. writer: by which it is steered, as long
    as its job has one."""

    is_begun = False
    writer: SharedWriter | None = None

    @property
    def is_awaiting_device(self) -> bool:
        """Whether its turn has come and it waits until a device is lent to it."""
        return not self.is_begun and not self.is_finished and not self.place

    @property
    def is_held_up(self) -> bool:
        """Never: each job has a device of its own."""
        return False

    @property
    def is_hurried(self) -> bool:
        """Never: nobody waits for this device."""
        return False

    def _steered(self) -> None:
        if self.writer is not None:
            self.writer.write_settings()


class SharedWriter:
    """What the lanes of a call are told, written whenever it changes, until it is closed."""

    def __init__(
        self, number: int, runs: Sequence[LeasedRun], write: Callable[[SharedSettings], None]
    ) -> None:
        self._number = number
        self._runs = runs
        self._write = write
        self._is_open = True
        self._lock = threading.Lock()
        for run in runs:
            run.writer = self

    def write_settings(self) -> SharedSettings:
        """Write what holds now; returns it."""
        with self._lock:
            runs = self._runs
            shared = SharedSettings(
                self._number,
                runs[0].pace,
                tuple(run.settings for run in runs),
                tuple(run.is_cancelled or run.is_finished for run in runs),
            )
            if self._is_open:
                self._write(shared)
            return shared

    def close(self) -> None:
        """Nothing is written any more: the slot is another's soon."""
        with self._lock:
            self._is_open = False
