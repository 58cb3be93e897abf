"""Time limits for work on untrusted input.

The worker thread enters ``limited``, and loops over rows call ``check``. Without a budget, as in a
command, ``check`` does nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_own = threading.local()


class BudgetError(RuntimeError):
    """The work took too long or its client has left; the message is one sentence."""


class Budget:
    """How long a piece of work may still take. ``cancel`` ends it early, from any thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._is_cancelled = False

    def cancel(self) -> None:
        """Let the next check fail."""
        self._is_cancelled = True

    def check(self) -> None:
        """Raise BudgetError once the time is over or the work was cancelled."""
        if self._is_cancelled:
            raise BudgetError("The work was stopped because its client has disconnected.")
        if time.monotonic() > self._until:
            raise BudgetError(
                f"This takes longer than {self._seconds:g} seconds. Send fewer judgements at a "
                "time, or use the command `review`."
            )


@contextmanager
def limited(budget: Budget) -> Iterator[None]:
    """Apply a budget to everything this thread does in the block."""
    _own.budget = budget
    try:
        yield
    finally:
        _own.budget = None


def check() -> None:
    """Raise BudgetError if the budget of this thread is used up."""
    budget: Budget | None = getattr(_own, "budget", None)
    if budget is not None:
        budget.check()
