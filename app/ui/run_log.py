"""Log of a run, line by line, and the values in which it is sent to the page.

A trace line is tagged with its transcript's name; ``verdict``, ``pace`` and ``status`` tag lines
about the run as a whole. Gradio converts a component's whole value to JSON several times per
update, so resending a long run would stall the browser (measured: 80 ms per update at 1.2 MB). A
short run is sent as a whole, a long one as a window of its latest lines. The first line of a value
contains the number of its first log line. Windows overlap, so the browser can skip a few values; if
it missed more, it requests the whole log.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from mars_runtime.json_values import json_line

WHOLE_CHARS = 120_000
OVERLAP = 6  # further values that repeat a line
NUM_KEPT = 8  # finished logs kept for pages that missed lines


class RunLog:
    """Lines of one run below its head. Any thread can add lines and read the values to send.

    head: the run as JSON, such as ``lanes`` ([{"lane", "title"}, ...]), ``pace`` (N of slow motion,
    0 for full speed), ``recorded`` (true or a date; absent for a live run) and ``run``, a unique id
    (random by default). The component defines the kinds of status, such as ``waiting`` or
    ``error``.
    """

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = {"run": uuid.uuid4().hex, **head}
        self.run: str = self._head["run"]
        self._lines: list[str] = []
        self._num_chars = 0
        self._ends: deque[int] = deque(maxlen=OVERLAP)
        self._has_news = True
        self._status = ""
        self._lock = threading.Lock()

    def add(self, tag: str, data: str | Mapping[str, Any]) -> None:
        """Append a trace line under its transcript's name, or an object under another tag."""
        text = data if isinstance(data, str) else json_line(data)
        line = f"{tag}\t{text.rstrip()}\n"
        with self._lock:
            self._lines.append(line)
            self._num_chars += len(line)
            self._has_news = True

    def say(self, text: str, kind: str = "waiting") -> None:
        """Append a status of a kind that the component knows; a repeated one is skipped."""
        if text != self._status:
            self._status = text
            self.add("status", {"text": text, "kind": kind})

    def refuse(self, text: str) -> None:
        """Report why the run cannot start or continue."""
        self.say(text, "error")

    def stop(self) -> None:
        """Report that the visitor stopped the run before it began."""
        self.say("Stopped before the first pass.", "stopped")

    @property
    def has_news(self) -> bool:
        """Whether lines were added since the last value."""
        return self._has_news

    def latest(self) -> str:
        """Return the next value to send: the whole run while it is short, then its latest lines.

        Call it exactly once for each value sent.
        """
        with self._lock:
            self._has_news = False
            begin = 0
            if self._num_chars > WHOLE_CHARS and self._ends:
                begin = self._ends[0]
            self._ends.append(len(self._lines))
            return self._from(begin)

    def whole(self) -> str:
        """Return all lines so far, for recordings and for a page that missed lines."""
        with self._lock:
            return self._from(0)

    def _from(self, begin: int) -> str:
        head = {**self._head, "from": begin} if begin else self._head
        return json_line(head) + "\n" + "".join(self._lines[begin:])


L = TypeVar("L", bound=RunLog)


class RunLogs:
    """Logs that a page can request as a whole: those that still stream, and the latest few.

    A run's id is random and only its own visitor gets it: knowing the id is the permission to read.
    """

    def __init__(self) -> None:
        self._by_run: WeakValueDictionary[str, RunLog] = WeakValueDictionary()
        self._latest: deque[RunLog] = deque(maxlen=NUM_KEPT)

    def keep(self, log: L) -> L:
        """Store the log under its run's id and return it."""
        self._by_run[log.run] = log
        self._latest.append(log)
        return log

    def missed(self, run: object) -> str:
        """Return the whole run as one value, for a page that missed lines; empty if it was
        dropped.
        """
        log = self._by_run.get(run) if isinstance(run, str) else None
        return log.whole() if log is not None else ""
