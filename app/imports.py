"""Judges a trace that a visitor brings, and writes it back as this program would have written it.

Trusts nothing in it: reading is ``mars_runtime.trace_reader``'s, and what it refuses becomes one
sentence. Knows no gradio, no file and no tray.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from mars_runtime import folds
from mars_runtime.trace import Trace, TraceError
from mars_runtime.trace_reader import TraceReader

MAX_NAME_CHARS = 120
MAX_NOTE_CHARS = 2000
MAX_RATING = 5
PIN = "pin"
"""The type of a line that may stand before a trace: what its owner called and thought of it."""

_LINES_AT_ONCE, _PAUSE = 4, 0.0005  # a decoding thread gets its turn while a long trace is read
_one_at_a_time = threading.Lock()


def read_import(text: object, max_chars: int) -> dict[str, Any]:
    """``{"lines": canonical trace lines, "pin": what its owner said of it}``, or ``{"error": one
    sentence}``."""
    try:
        if not isinstance(text, str):
            raise TraceError("This is not text.")
        if len(text) > max_chars:
            raise TraceError(f"A run of more than {max_chars / 1e6:g} MB is not read.")
        with _one_at_a_time:
            return _read(text)
    except TraceError as error:
        return {"error": str(error)}


def _read(text: str) -> dict[str, Any]:
    lines = text.split("\n")
    pin = _pin(lines[0])
    reader = TraceReader()
    for number, line in enumerate(lines if pin is None else ["", *lines[1:]]):
        reader.feed(line)
        if number % _LINES_AT_ONCE == 0:
            time.sleep(_PAUSE)
    trace = reader.trace()
    _check(trace)
    return {"lines": list(trace.lines()), "pin": pin or {}}


def _check(trace: Trace) -> None:
    """A trace can be well written and yet nothing to look at beside others."""
    rows = folds.rows(trace.events)
    if not rows:
        raise TraceError("This trace has no forward in it, so there is nothing to compare.")
    if rows != (0,):
        raise TraceError(f"This trace is of {len(rows)} rows; the tray takes runs of one prompt.")


def _pin(line: str) -> dict[str, Any] | None:
    """The owner's words, None where the first line is not a pin. Raises TraceError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("type") != PIN:
        return None
    return {
        "name": _words(value, "name", MAX_NAME_CHARS),
        "note": _words(value, "note", MAX_NOTE_CHARS),
        "rating": _rating(value),
        "verdict": value["verdict"] if isinstance(value.get("verdict"), bool) else None,
    }


def _words(value: Mapping[str, Any], key: str, most: int) -> str:
    words = value.get(key, "")
    if not isinstance(words, str) or len(words) > most:
        raise TraceError(f"The {key} of a pinned run is a text of at most {most:,} characters.")
    return words


def _rating(value: Mapping[str, Any]) -> int:
    rating = value.get("rating", 0)
    if type(rating) is not int or not 0 <= rating <= MAX_RATING:
        raise TraceError(f"The rating of a pinned run is 0 (none) to {MAX_RATING}.")
    return rating
