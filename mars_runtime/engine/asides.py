"""Work on the model that is no run: a piece at a time, between the forwards of runs.

Where nobody decodes, one piece follows the other. Where somebody does, a piece rests so many times
as long as it took that all pieces together take SHARE of the time: a run hardly sees them, and the
gap between most of its forwards is what it was. One after the other, few of one owner. Pure
bookkeeping: knows no model, no thread and no time of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

SHARE = 0.04
MAX_WAITING, MAX_OF_ONE = 6, 2


class AsidesFullError(Exception):
    """So much is waiting, of all or of this owner, that no more is taken."""


@dataclass(slots=True)
class Aside:
    """``make`` begins it, by the worker; ``found`` gets what it returns, or its error."""

    owner: str
    make: Callable[[], Generator[None, None, Any]]
    found: Future[Any] = field(default_factory=Future)
    pieces: Generator[None, None, Any] | None = None

    def go_on(self) -> None:
        """One piece; ``found`` is done after the last."""
        try:
            if self.pieces is None:
                self.pieces = self.make()
            next(self.pieces)
        except StopIteration as done:
            if self._is_wanted():
                self.found.set_result(done.value)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """It is over, unless it was before."""
        if not self.found.done() and self._is_wanted():
            self.found.set_exception(error)

    def _is_wanted(self) -> bool:
        """False where whoever asked has gone; from here on they can't."""
        return self.found.set_running_or_notify_cancel()


class Asides:
    """What waits, the first of it in hand. Whoever adds holds the engine's bell; the worker alone
    goes on."""

    def __init__(self) -> None:
        self._waiting: deque[Aside] = deque()
        self._due = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, aside: Aside) -> None:
        """Raises AsidesFullError."""
        owners = Counter(each.owner for each in self._waiting if not each.found.cancelled())
        if owners.total() >= MAX_WAITING or owners[aside.owner] >= MAX_OF_ONE:
            raise AsidesFullError
        self._waiting.append(aside)

    def next(self, now: float, *, is_free: bool) -> Aside | None:
        """What a piece is to be done of now. is_free: nobody wants the device."""
        while self._waiting and self._waiting[0].found.done():
            self._waiting.popleft()  # it is over, or nobody waits for it any more
        if not self._waiting or not (is_free or now >= self._due):
            return None
        return self._waiting[0]

    def rest(self, seconds: float, now: float) -> None:
        """A piece took ``seconds`` and was over ``now``."""
        self._due = now + seconds * (1.0 / SHARE - 1.0)

    def end(self, error: Exception) -> None:
        """Nothing is done any more."""
        while self._waiting:
            self._waiting.popleft().fail(error)
