"""Log of a run, and the component values in which the log is sent to the page.

A line of a trace is tagged with the name of its transcript. Lines with the tags ``verdict``,
``pace`` and ``status`` are about the whole run. Gradio converts the whole value of a component to
JSON several times per update, so sending a long run completely would stall the browser (measured:
80 ms per update at 1.2 MB). Therefore a short run is sent completely, and a long run as a window of
its latest lines. The head of a window has the number of the window's first log line. Windows
overlap, so a browser can miss a few values; if it misses more, it requests the whole log.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from mars_runtime.files.json_values import json_line

WHOLE_CHARS = 120_000
OVERLAP = 6  # number of times that a line is sent again in later values
NUM_KEPT = 8  # number of finished logs that pages can still request


class RunLog:
    """The lines of one run, after a first line with its head. Any thread can add lines and read
    values.

    head: describes the run, for example ``lanes`` ([{"lane", "title"}, ...]), ``pace`` (N of slow
    motion, 0 for full speed), ``recorded`` (true or a date; absent for a live run) and ``run``, a
    unique id (random by default). The view of the tab defines the kinds of status, such as
    ``waiting`` or ``error``.
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
        """Append a line. data: a trace line, tagged with the name of its lane, or an object
        that is written as JSON.
        """
        text = data if isinstance(data, str) else json_line(data)
        line = f"{tag}\t{text.rstrip()}\n"
        with self._lock:
            self._lines.append(line)
            self._num_chars += len(line)
            self._has_news = True

    def say(self, text: str, kind: str = "waiting") -> None:
        """Append a status, unless its text equals the previous one. kind: a kind of status that the
        view of the tab can display.
        """
        if text != self._status:
            self._status = text
            self.add("status", {"text": text, "kind": kind})

    def refuse(self, text: str) -> None:
        """Append an error that explains why the run cannot start or continue."""
        self.say(text, "error")

    def stop(self) -> None:
        """Append the message that the visitor stopped the run before it began."""
        self.say("Stopped before the first pass.", "stopped")

    @property
    def has_news(self) -> bool:
        """Whether lines were added since the last call of ``latest``."""
        return self._has_news

    def latest(self) -> str:
        """Return the next value to send: the whole log while it is short, otherwise its latest
        lines.

        Call it exactly once for each value that is sent.
        """
        with self._lock:
            self._has_news = False
            begin = 0
            if self._num_chars > WHOLE_CHARS and self._ends:
                begin = self._ends[0]
            self._ends.append(len(self._lines))
            return self._from(begin)

    def whole(self) -> str:
        """Return the whole log, for recordings and for pages that missed lines."""
        with self._lock:
            return self._from(0)

    def _from(self, begin: int) -> str:
        head = {**self._head, "from": begin} if begin else self._head
        return json_line(head) + "\n" + "".join(self._lines[begin:])


L = TypeVar("L", bound=RunLog)


class RunLogs:
    """Logs that a page can request completely: those of active runs and of the latest finished
    ones.

    The id of a run is random and only sent to its visitor, so any client that knows the id may read
    the log.
    """

    def __init__(self) -> None:
        self._by_run: WeakValueDictionary[str, RunLog] = WeakValueDictionary()
        self._latest: deque[RunLog] = deque(maxlen=NUM_KEPT)

    def keep(self, log: L) -> L:
        """Store the log under the id of its run, and return it."""
        self._by_run[log.run] = log
        self._latest.append(log)
        return log

    def missed(self, run: object) -> str:
        """Return the whole log of a run as one value, for a page that missed lines; empty if it was
        evicted.
        """
        log = self._by_run.get(run) if isinstance(run, str) else None
        return log.whole() if log is not None else ""
