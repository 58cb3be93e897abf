"""What the page is told of a run, line by line, and the values in which it is sent.

The name of a transcript tags a line of its trace; ``verdict``, ``pace`` and ``status`` tag what
concerns the run as a whole. Gradio turns a component's whole value into JSON several times at each
update, so sending a long run again and again would stall the browser (measured: 80 ms an update at
1.2 MB). A value is therefore the whole run while that is short, and later a window: its first line
says at which line it starts, and windows overlap, so that the browser misses nothing if it skips a
few. One that missed more asks for the whole. Knows no gradio and no trace; lines are opaque.
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
OVERLAP = 6  # values that repeat a line after the one that brought it
NUM_KEPT = 8  # logs that outlive their stream, for visitors who still miss lines of them


class RunLog:
    """The lines of one run under its head, added by any thread, read as the values to send.

    head: the run as JSON, such as ``lanes`` ([{"lane", "title"}, ...]), ``pace`` (N of slow motion,
    0 for full speed), ``recorded`` (true or a date) where it is not live, and ``run``, a unique id
    where it is not to have a random one. A status is of a kind that the component knows, such as
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
        """Append a trace line under its transcript's name, or an object under another tag."""
        text = data if isinstance(data, str) else json_line(data)
        line = f"{tag}\t{text.rstrip()}\n"
        with self._lock:
            self._lines.append(line)
            self._num_chars += len(line)
            self._has_news = True

    def say(self, text: str, kind: str = "waiting") -> None:
        """Append a sentence for the whole run, of a kind that the component knows; a repeated one
        is left out."""
        if text != self._status:
            self._status = text
            self.add("status", {"text": text, "kind": kind})

    def refuse(self, text: str) -> None:
        """Say why nothing, or nothing more, can be run."""
        self.say(text, "error")

    def stop(self) -> None:
        """Say that the visitor stopped it before anything ran."""
        self.say("Stopped before anything ran.", "stopped")

    @property
    def has_news(self) -> bool:
        """Whether lines were added since a value was last asked for."""
        return self._has_news

    def latest(self) -> str:
        """What to send: the whole run while that is short, then its latest lines. Call it once for
        each value sent."""
        with self._lock:
            self._has_news = False
            begin = 0
            if self._num_chars > WHOLE_CHARS and self._ends:
                begin = self._ends[0]
            self._ends.append(len(self._lines))
            return self._from(begin)

    def whole(self) -> str:
        """Everything there is so far: for recordings, and for a browser that missed lines."""
        with self._lock:
            return self._from(0)

    def _from(self, begin: int) -> str:
        head = {**self._head, "from": begin} if begin else self._head
        return json_line(head) + "\n" + "".join(self._lines[begin:])


L = TypeVar("L", bound=RunLog)


class RunLogs:
    """The logs that a page may ask for once more: those that still stream, and the latest few.

    A run's id is random and goes to its own visitor alone, so whoever knows it may read the run.
    """

    def __init__(self) -> None:
        self._by_run: WeakValueDictionary[str, RunLog] = WeakValueDictionary()
        self._latest: deque[RunLog] = deque(maxlen=NUM_KEPT)

    def keep(self, log: L) -> L:
        """The log itself, to be found by its run from now on."""
        self._by_run[log.run] = log
        self._latest.append(log)
        return log

    def missed(self, run: object) -> str:
        """The run as one value, for a page that missed some of its lines; empty if forgotten."""
        log = self._by_run.get(run) if isinstance(run, str) else None
        return log.whole() if log is not None else ""
