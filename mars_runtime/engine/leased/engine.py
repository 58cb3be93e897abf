"""Engine on a device that is leased for each run. Jobs share no forward passes.

Every job is one call of a lease (``worker.py``), which decodes it in another process; a thread adds
the events to the runs. A run that is cancelled or passes its deadline ends immediately, whatever
the other process is doing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from contextvars import copy_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import BaseEngine
from mars_runtime.engine.leased.worker import Call, Lease, LeaseError, SharedSettings
from mars_runtime.engine.request import AnyRequest
from mars_runtime.engine.run import Run, overdue
from mars_runtime.runs.events import End, Event, Prefill, Step

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts

LOST = "The GPU was lost during the answer: run it again."
_log = logging.getLogger(__name__)


class LeasedEngine(BaseEngine):
    """checkpoint: name of the checkpoint that the other process loads.
    check: raises RequestError for an invalid request.
    max_runs: maximum number of jobs that use or request a device at once.
    """

    def __init__(
        self,
        checkpoint: str,
        lease: Lease,
        check: Callable[[AnyRequest], None],
        capacity: int,
        max_runs: int = 4,
        max_waiting: int = 16,
    ) -> None:
        super().__init__(max_runs, max_waiting)
        self._checkpoint = checkpoint
        self._lease = lease
        self._check_request = check
        self._capacity = capacity
        self._costs: ForwardCosts | None = None
        self._deadline_thread = threading.Thread(
            target=self._enforce_deadlines, name="mars-leases", daemon=True
        )
        self._deadline_thread.start()

    @property
    def capacity(self) -> int:
        return self._capacity

    def costs(self) -> ForwardCosts | None:
        """Return None before the first lease."""
        return self._costs

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.wake()
        self._deadline_thread.join()

    def _check(self, request: AnyRequest) -> None:
        self._check_request(request)

    def _serve(
        self, requests: Sequence[AnyRequest], pace: float, is_shared: bool = False
    ) -> Sequence[Run]:
        runs = self._enqueue(LeasedRun, requests, pace)
        context = copy_context()  # identifies the visitor and the page that pay for the lease
        threading.Thread(
            target=context.run, args=(self._follow, runs), name="mars-lease", daemon=True
        ).start()
        return runs

    def _follow(self, runs: Sequence[LeasedRun]) -> None:
        end, job = End("error", LOST), runs[0].job
        try:
            with self._condition:
                self._condition.wait_for(
                    lambda: job.is_finished or not self._scheduler.num_ahead(job)
                )
            if not job.is_finished:
                self._call(runs)
        except LeaseError as error:
            end = End("error", str(error))
        except Exception as error:
            _log.error("A leased run failed\n%s", where(error))
        finally:
            with self._condition:
                self._end_all(runs, end)

    def _call(self, runs: Sequence[LeasedRun]) -> None:
        """Return when the other process has finished; drop events of runs that have ended here."""
        lock = threading.Lock()
        with TemporaryDirectory(prefix="mars-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, "settings")

            def share() -> SharedSettings:
                with lock:
                    shared = SharedSettings(
                        runs[0].pace,
                        tuple(run.settings for run in runs),
                        tuple(run.is_cancelled or run.is_finished for run in runs),
                    )
                    with suppress(FileNotFoundError):  # the call is over
                        shared.write(path)
                    return shared

            for run in runs:
                run.share = share
            requests, until = zip(*((run.request, run.deadline) for run in runs), strict=True)
            call = Call(path, self._checkpoint, requests, until, share())
            with closing(self._lease(call)) as stream:
                for news in stream:
                    self._costs = news.costs or self._costs
                    for lane, event in news.events:
                        self._deliver(runs[lane], event)

    def _deliver(self, run: LeasedRun, event: Event) -> None:
        run.is_begun = True
        if isinstance(event, End):
            with self._condition:
                self._end_all([run], event)
            return
        if isinstance(event, (Prefill, Step)):
            run.clock += event.seconds
        run.add(event)

    def _enforce_deadlines(self) -> None:
        """End overdue runs, even if their processes hang."""
        with self._condition:
            while not self._is_closed:
                now = time.monotonic()
                for run, end in overdue(list(self._scheduler.lanes()), now):
                    self._end_all([run], end)
                seconds = self._scheduler.next_deadline() - now
                self._condition.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX))
            for run in list(self._scheduler.lanes()):
                self._end_all([run], End("cancelled", "The server was stopped."))
                run.cancel()

    def _end_all(self, runs: Sequence[Run], end: End) -> None:
        """Call with the lock held."""
        for run in runs:
            if not run.is_finished:
                self._end(run, end)
        self._condition.notify_all()


class LeasedRun(Run):
    """is_begun: whether an event has been received. share: sends changed settings to the other
    process.
    """

    is_begun = False
    share: Callable[[], object] | None = None

    @property
    def is_awaiting_device(self) -> bool:
        return not self.is_begun and not self.is_finished and not self.num_ahead

    @property
    def is_held_up(self) -> bool:
        return False

    @property
    def is_hurried(self) -> bool:
        return False

    def _on_change(self) -> None:
        if self.share is not None:
            self.share()
