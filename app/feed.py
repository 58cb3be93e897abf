"""The value of the drawing component: one string that only ever grows, line by line.

The first line says which run this is: ``{"run": unique id, "lanes": [{"lane", "title"}], "pace"}``.
Every further line is a tag, a tab and JSON. A lane's name tags a line of its trace; ``verdict``,
``pace`` and ``status`` tag what concerns the run as a whole. Lines end with a newline, so a value
cut anywhere is never misread. Knows no gradio, no engine and no drawing.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from typing import Any

from app.controls import TITLES


class RunFeed:
    """The lines of one run, added by any thread, read as one string."""

    def __init__(self, lanes: Sequence[str], pace: float) -> None:
        self.lanes = tuple(lanes)
        titles = [{"lane": name, "title": TITLES[name]} for name in lanes]
        head = {"run": uuid.uuid4().hex, "lanes": titles, "pace": pace}
        self._parts = [json.dumps(head) + "\n"]
        self._text = ""
        self._status = ""
        self._lock = threading.Lock()

    def add(self, tag: str, data: str | dict[str, Any]) -> None:
        """Append a trace line under its lane's name, or an object under another tag."""
        line = data if isinstance(data, str) else json.dumps(data)
        with self._lock:
            self._parts.append(f"{tag}\t{line}\n")

    def say(self, text: str) -> None:
        """Append a status sentence, shown until the next forward; a repeated one is left out."""
        if text != self._status:
            self._status = text
            self.add("status", {"text": text})

    def refuse(self, text: str) -> None:
        """End every lane with a sentence that says why nothing can be run."""
        for name in self.lanes:
            self.add(name, {"type": "end", "reason": "error", "message": text})

    def verdict(self, lane: str, is_right: bool) -> None:
        """Append whether a lane's output is right."""
        self.add("verdict", {"lane": lane, "right": is_right})

    @property
    def has_news(self) -> bool:
        """Whether lines were added since ``text`` was last asked for."""
        return bool(self._parts)

    def text(self) -> str:
        """Everything so far."""
        with self._lock:
            self._text += "".join(self._parts)
            self._parts.clear()
        return self._text
