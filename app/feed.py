"""What a drawing component is told of a run, line by line. Knows no gradio and no drawing.

The name of a transcript tags a line of its trace; ``verdict``, ``pace`` and ``status`` tag what
concerns the run as a whole. How lines become values to send is ``components/race_value.py``.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from app.components.race_value import RaceValue

NUM_KEPT = 8  # feeds that outlive their stream, for visitors who still miss lines of it


class Feed:
    """The lines of one run under its head, added by any thread, read as the values to send.

    A status is of a kind that the component knows, such as ``waiting`` or ``error``.
    """

    def __init__(self, head: Mapping[str, Any]) -> None:
        self.run = uuid.uuid4().hex
        self._value = RaceValue({"run": self.run, **head})
        self._has_news = True
        self._status = ""
        self._lock = threading.Lock()

    def add(self, tag: str, data: str | dict[str, Any]) -> None:
        """Append a trace line under its transcript's name, or an object under another tag."""
        with self._lock:
            self._value.add(tag, data)
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

    def text(self) -> str:
        """What to send: the whole run while that is short, then its latest lines."""
        with self._lock:
            self._has_news = False
            return self._value.latest()

    def whole(self) -> str:
        """Everything there is so far."""
        with self._lock:
            return self._value.whole()


F = TypeVar("F", bound=Feed)


class Feeds:
    """The feeds that a page may ask for once more: those that still stream, and the latest few.

    A run's id is random and goes to its own visitor alone, so whoever knows it may read the run.
    """

    def __init__(self) -> None:
        self._by_run: WeakValueDictionary[str, Feed] = WeakValueDictionary()
        self._latest: deque[Feed] = deque(maxlen=NUM_KEPT)

    def keep(self, feed: F) -> F:
        """The feed itself, to be found by its run from now on."""
        self._by_run[feed.run] = feed
        self._latest.append(feed)
        return feed

    def missed(self, run: object) -> str:
        """The run as one value, for a page that missed some of its lines; empty if forgotten."""
        feed = self._by_run.get(run) if isinstance(run, str) else None
        return feed.whole() if feed is not None else ""
