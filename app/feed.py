"""What a drawing component is told of a run, line by line. Knows no gradio and no drawing.

A lane's name tags a line of its trace; ``verdict``, ``pace`` and ``status`` tag what concerns the
run as a whole. How lines become values to send is ``components/race_value.py``.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from app.components.race_value import RaceValue
from app.controls import TITLES

NUM_KEPT = 8  # feeds that outlive their stream, for visitors who still miss lines of it


class Feed:
    """The lines of one run under its head, added by any thread, read as the values to send."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self.run = str(head["run"])
        self._value = RaceValue(head)
        self._has_news = True
        self._status = ""
        self._lock = threading.Lock()

    def add(self, tag: str, data: str | dict[str, Any]) -> None:
        """Append a trace line under its lane's name, or an object under another tag."""
        with self._lock:
            self._value.add(tag, data)
            self._has_news = True

    def say(self, text: str, kind: str = "waiting") -> None:
        """Append a sentence for the whole run, of a kind that the component knows; a repeated one
        is left out."""
        if text != self._status:
            self._status = text
            self.add("status", {"text": text, "kind": kind})

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


class RunFeed(Feed):
    """The lines of a race, or of a lane alone. A status is shown until the next forward or, of the
    kind ``note``, until another follows."""

    def __init__(self, lanes: Sequence[str], pace: float) -> None:
        titles = [{"lane": name, "title": TITLES[name]} for name in lanes]
        super().__init__({"run": uuid.uuid4().hex, "lanes": titles, "pace": pace})
        self.lanes = tuple(lanes)

    def refuse(self, text: str) -> None:
        """End every lane with a sentence that says why nothing can be run."""
        self._end("error", text)

    def stop(self) -> None:
        """End every lane, of which nothing was run, as its visitor wished."""
        self._end("cancelled", "")

    def _end(self, reason: str, text: str) -> None:
        for name in self.lanes:
            self.add(name, {"type": "end", "reason": reason, "message": text})

    def verdict(self, lane: str, is_right: bool) -> None:
        """Append whether a lane's output is right."""
        self.add("verdict", {"lane": lane, "right": is_right})


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
