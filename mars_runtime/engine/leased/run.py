"""A run that another process decodes: what it is told travels through a slot. Knows no process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from mars_runtime.engine.leased.slots import Orders
from mars_runtime.engine.run import Run


class LeasedRun(Run):
    """is_begun: whether anything has come from the device. board: where its orders are put up, as
    long as its job has one."""

    is_begun = False
    board: Board | None = None

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
        if self.board is not None:
            self.board.put_up()


class Board:
    """What the lanes of a call are told, written whenever it changes, until it is closed."""

    def __init__(
        self, number: int, runs: Sequence[LeasedRun], write: Callable[[Orders], None]
    ) -> None:
        self._number = number
        self._runs = runs
        self._write = write
        self._is_open = True
        self._lock = threading.Lock()
        for run in runs:
            run.board = self

    def put_up(self) -> Orders:
        """Write what holds now; returns it."""
        with self._lock:
            runs = self._runs
            orders = Orders(
                self._number,
                runs[0].pace,
                tuple(run.settings for run in runs),
                tuple(run.is_cancelled or run.is_finished for run in runs),
            )
            if self._is_open:
                self._write(orders)
            return orders

    def close(self) -> None:
        """Nothing is written any more: the slot is another's soon."""
        with self._lock:
            self._is_open = False
