"""Background jobs on the model, done in pieces between the forwards of runs.

While no run decodes, the pieces follow each other without pause. Otherwise the job pauses after
each piece so that all pieces together take SHARE of the time; most gaps between forwards of a run
stay as they were. Jobs run one after the other, and the number per owner is limited. Pure
bookkeeping: the module uses no model, thread or clock.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

SHARE = 0.04
MAX_WAITING, MAX_OF_ONE = 6, 2


class AsidesFullError(Exception):
    """The queue of background jobs is full, globally or for this owner."""


@dataclass(slots=True)
class Aside:
    """A background job in pieces, which only the worker thread runs.

    found: gets the result or the error of the job.
    """

    owner: str
    pieces: Generator[None, None, Any]
    found: Future[Any] = field(default_factory=Future)

    def go_on(self) -> None:
        """Run one piece; the last one completes ``found``."""
        try:
            next(self.pieces)
        except StopIteration as done:
            if self._is_wanted():
                self.found.set_result(done.value)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the job with an error, unless it has ended."""
        if not self.found.done() and self._is_wanted():
            self.found.set_exception(error)

    def _is_wanted(self) -> bool:
        """Return False if the caller has cancelled; otherwise it can no longer cancel."""
        return self.found.set_running_or_notify_cancel()


class Asides:
    """FIFO of background jobs.

    Call ``add`` with the engine lock held; only the worker runs jobs.
    """

    def __init__(self) -> None:
        self._waiting: deque[Aside] = deque()
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, aside: Aside) -> None:
        """Enqueue a job. Raises AsidesFullError."""
        owners = Counter(
            waiting.owner for waiting in self._waiting if not waiting.found.cancelled()
        )
        if owners.total() >= MAX_WAITING or owners[aside.owner] >= MAX_OF_ONE:
            raise AsidesFullError
        self._waiting.append(aside)

    def next(self, now: float, *, is_free: bool) -> Aside | None:
        """Return the job of which one piece is to be run now. is_free: no run needs the device."""
        while self._waiting and self._waiting[0].found.done():
            self._waiting.popleft()  # completed or cancelled
        if not self._waiting or not (is_free or now >= self._due):
            return None
        return self._waiting[0]

    def rest(self, seconds: float, now: float) -> None:
        """Schedule the pause after a piece that took ``seconds`` and ended at ``now``."""
        self._due = now + seconds * (1.0 / SHARE - 1.0)

    def end(self, error: Exception) -> None:
        """End all jobs with an error."""
        while self._waiting:
            self._waiting.popleft().fail(error)
