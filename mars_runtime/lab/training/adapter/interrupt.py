"""A first interrupt that waits for the end of a step. Knows signals alone."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupt:
    """Turns the first interrupt or termination into a wish to stop after the step."""

    came = False

    def __enter__(self) -> Interrupt:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
