"""The value of the race view: what was written of a run so far, or the latest part of it.

Gradio turns a component's whole value into JSON several times at each update, so sending a long run
again and again would stall the browser (measured: 80 ms an update at 1.2 MB). A value is therefore
the whole run while that is short, and later a window: its first line says at which line it starts,
and windows overlap, so that the browser misses nothing if it skips a few. One that missed more asks
for the whole (``LineView.missed``). Knows no gradio and no trace; lines are opaque.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

WHOLE_CHARS = 120_000
OVERLAP = 6  # values that repeat a line after the one that brought it


class RaceValue:
    """Grows by lines; gives the string to send.

    head: the run as JSON: ``run`` (unique id), ``lanes`` ([{"lane", "title"}, ...]), ``pace`` (N of
    slow motion, 0 for full speed), ``recorded`` (true or a date) where it is not live.
    """

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = dict(head)
        self._lines: list[str] = []
        self._num_chars = 0
        self._ends: deque[int] = deque(maxlen=OVERLAP)

    def add(self, tag: str, data: str | Mapping[str, Any]) -> None:
        """Append a line: a trace line under its lane's name, or JSON under ``verdict``, ``pace`` or
        ``status``."""
        text = data if isinstance(data, str) else _json(data)
        self._lines.append(f"{tag}\t{text.rstrip()}\n")
        self._num_chars += len(self._lines[-1])

    def whole(self) -> str:
        """Everything: for recordings, and for a browser that missed lines."""
        return self._from(0)

    def latest(self) -> str:
        """What to send while the run goes on; call it once for each value sent."""
        begin = 0
        if self._num_chars > WHOLE_CHARS and self._ends:
            begin = self._ends[0]
        self._ends.append(len(self._lines))
        return self._from(begin)

    def _from(self, begin: int) -> str:
        head = {**self._head, "from": begin} if begin else self._head
        return _json(head) + "\n" + "".join(self._lines[begin:])


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
