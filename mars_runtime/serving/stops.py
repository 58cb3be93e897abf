"""Cuts a text that comes in pieces before the first stop string, wherever its pieces are cut.

What may be the beginning of a stop string is held back until it is clear. Knows no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopCutter:
    """Text in, text out. The stop string that is complete first counts, of several that are
    complete at the same character the longest, so that the pieces make no difference."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.is_cut = False

    def push(self, text: str) -> str:
        """What may be shown now; nothing any more once it ``is_cut``."""
        if self.is_cut:
            return ""
        held = self._held + text
        ends = [(at + len(stop), at) for stop in self._stops if (at := held.find(stop)) >= 0]
        if ends:
            self.is_cut, self._held = True, ""
            return held[: min(ends)[1]]
        num_shown = len(held) - self._num_open(held)
        self._held = held[num_shown:]
        return held[:num_shown]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        left, self._held = self._held, ""
        return left

    def _num_open(self, text: str) -> int:
        """How many of the last characters begin a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
