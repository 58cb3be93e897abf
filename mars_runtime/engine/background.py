"""Background jobs on the model, run in pieces between the forward passes of runs.

While no run decodes, the pieces follow each other without a pause. Otherwise the job pauses after
each piece, so that all pieces together take SHARE of the time. Jobs run one after the other, and
each owner may queue at most MAX_OF_OWNER.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

SHARE = 0.04
MAX_WAITING, MAX_OF_OWNER = 6, 2


class BackgroundQueueFullError(Exception):
    """The queue of background jobs is full, globally or for this owner."""


@dataclass(slots=True)
class BackgroundJob:
    """A background job in pieces, which only the worker thread runs.

    ``result`` receives the result or the error of the job.
    """

    owner: str
    pieces: Generator[None, None, Any]
    result: Future[Any] = field(default_factory=Future)

    def run_piece(self) -> None:
        """Run one piece; the last one sets ``result``."""
        try:
            next(self.pieces)
        except StopIteration as done:
            if self._claim():
                self.result.set_result(done.value)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the job with an error, unless it has already ended."""
        if not self.result.done() and self._claim():
            self.result.set_exception(error)

    def _claim(self) -> bool:
        """Return false if the caller has cancelled the job, else prevent a later cancellation."""
        return self.result.set_running_or_notify_cancel()


class BackgroundJobs:
    """FIFO queue of background jobs.

    Call ``add`` with the engine's lock held. Only the worker thread runs jobs.
    """

    def __init__(self) -> None:
        self._waiting: deque[BackgroundJob] = deque()
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, job: BackgroundJob) -> None:
        """Enqueue a job. Raises BackgroundQueueFullError."""
        owners = Counter(
            waiting.owner for waiting in self._waiting if not waiting.result.cancelled()
        )
        if owners.total() >= MAX_WAITING or owners[job.owner] >= MAX_OF_OWNER:
            raise BackgroundQueueFullError
        self._waiting.append(job)

    def next(self, now: float, *, is_free: bool) -> BackgroundJob | None:
        """Return the first job of the queue if its next piece is due, else None.

        ``is_free`` means that no run needs the device, so the piece is due immediately.
        """
        while self._waiting and self._waiting[0].result.done():
            self._waiting.popleft()  # The job was completed or cancelled.
        if not self._waiting or not (is_free or now >= self._due):
            return None
        return self._waiting[0]

    def schedule_pause(self, seconds: float, now: float) -> None:
        """Schedule the pause after a piece that took ``seconds`` and ended at ``now``."""
        self._due = now + seconds * (1.0 / SHARE - 1.0)

    def fail_all(self, error: Exception) -> None:
        while self._waiting:
            self._waiting.popleft().fail(error)
