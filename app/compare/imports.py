"""Judges a trace that a visitor brings, and writes it back as this program would have written it.

Trusts nothing in it: reading is ``mars_runtime.trace_reader``'s, and what it refuses becomes one
sentence. One is read at a time, a few wait for a moment, and none is read for long, so that nobody
keeps the server's threads or the interpreter from the others. Knows no gradio, no file and no tray.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mars_runtime import folds
from mars_runtime.trace import Trace, TraceError
from mars_runtime.trace_reader import TraceReader

MAX_NAME_CHARS = 120
MAX_NOTE_CHARS = 2000
MAX_RATING = 5
PIN = "pin"
"""The type of a line that may stand before a trace: what its owner called and thought of it."""

MAX_LINES = 20_000
READ_SECONDS = 10.0  # the longest run this program writes takes a fraction of it
MAX_WAITING, WAIT_SECONDS = 4, 2.0
BUSY = "Other runs are being read just now: bring this one again in a moment."
_AT_ONCE, _PAUSE = 0.002, 0.0005  # seconds; a decoding thread gets its turn while a trace is read
_one_at_a_time = threading.Lock()
_line = threading.BoundedSemaphore(1 + MAX_WAITING)


def read_import(text: object, max_chars: int) -> dict[str, Any]:
    """``{"lines": canonical trace lines, "pin": what its owner said of it}``, or ``{"error": one
    sentence}``."""
    try:
        if not isinstance(text, str):
            raise TraceError("This is not text.")
        if len(text) > max_chars:
            raise TraceError(f"A run of more than {max_chars / 1e6:g} MB is not read.")
        if text.count("\n") >= MAX_LINES:
            raise TraceError(f"A run of more than {MAX_LINES:,} lines is not read.")
        with _admitted():
            return _read(text)
    except TraceError as error:
        return {"error": str(error)}


@contextmanager
def _admitted() -> Iterator[None]:
    """Read one at a time. Raises TraceError where too many wait, or for too long."""
    if not _line.acquire(blocking=False):
        raise TraceError(BUSY)
    try:
        if not _one_at_a_time.acquire(timeout=WAIT_SECONDS):
            raise TraceError(BUSY)
        try:
            yield
        finally:
            _one_at_a_time.release()
    finally:
        _line.release()


def _read(text: str) -> dict[str, Any]:
    lines = text.split("\n")
    pin = _pin(lines[0])
    reader = TraceReader()
    rested = time.monotonic()
    until = rested + READ_SECONDS
    for line in lines if pin is None else ["", *lines[1:]]:
        reader.feed(line)
        now = time.monotonic()
        if now > until:
            raise TraceError(f"Reading this run takes longer than {READ_SECONDS:g} s: shorten it.")
        if now - rested > _AT_ONCE:
            time.sleep(_PAUSE)
            rested = time.monotonic()
    trace = reader.trace()
    _check(trace)
    answer = {"lines": list(trace.lines()), "pin": pin or {}}
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can spell half of a character, an answer cannot hold it
        raise TraceError("There are characters in it that are no valid text.") from None
    return answer


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
