"""Time limits for requests that process untrusted input.

A worker thread runs the request inside ``limited``, and long loops call ``check``. In commands,
which set no budget, ``check`` does nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_current = threading.local()


class BudgetError(RuntimeError):
    """A request took too long, or its client has disconnected."""


class Budget:
    """The time limit of one request. Any thread may call ``cancel`` to end the request early."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._is_cancelled = False

    def cancel(self) -> None:
        """Make the next ``check`` raise BudgetError."""
        self._is_cancelled = True

    def check(self) -> None:
        """Raise BudgetError if the time limit has passed or the request was cancelled."""
        if self._is_cancelled:
            raise BudgetError("The request was stopped because its client has disconnected.")
        if time.monotonic() > self._until:
            raise BudgetError(
                f"This request took longer than {self._seconds:g} seconds. Send fewer judgements "
                "at a time, or use the command `review`."
            )


@contextmanager
def limited(budget: Budget) -> Iterator[None]:
    """Apply a budget to the current thread for the duration of the block."""
    _current.budget = budget
    try:
        yield
    finally:
        _current.budget = None


def check() -> None:
    """Raise BudgetError if the current thread has a budget and it is exhausted."""
    budget: Budget | None = getattr(_current, "budget", None)
    if budget is not None:
        budget.check()
