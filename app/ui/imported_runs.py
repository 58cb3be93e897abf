"""Validates a trace that a visitor uploads and writes it again in this program's own form.

Nothing in such a trace is trusted: ``mars_runtime.trace`` reads it, and its errors become one
sentence. Few traces are read at a time, few per address and each for a limited time. They take
turns, so a reader blocks neither the server's threads nor the interpreter.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mars_runtime import folds
from mars_runtime.trace import Trace, TraceError, TraceReader

MAX_NAME_CHARS = 120
MAX_NOTE_CHARS = 2000
MAX_RATING = 5
PIN = "pin"
"""Type of an optional line before the trace, with its owner's title and notes."""

MAX_LINES = 20_000
READ_SECONDS = 10.0  # far more than this program's longest run needs
MAX_READ, MAX_OF_ONE = 5, 2  # in total and per address
WAIT_SECONDS = 2.0  # for a turn
BUSY = "Other runs are being read right now. Import this one again in a moment."
_AT_ONCE, _PAUSE = 0.002, 0.0005  # seconds; lets the decoding thread run
_one_at_a_time = threading.Lock()
_reading: Counter[str] = Counter()  # addresses
_places = threading.Lock()


def read_import(text: object, max_chars: int, address: str = "") -> dict[str, Any]:
    """Return ``{"lines": canonical trace lines, "pin": the owner's notes}`` or ``{"error": one
    sentence}``.

    address: the client's, for the limit per address.
    """
    try:
        if not isinstance(text, str):
            raise TraceError("This file is not text.")
        if len(text) > max_chars:
            raise TraceError(
                f"This run has more than {max_chars / 1e6:g} MB, the most that can be read."
            )
        if text.count("\n") >= MAX_LINES:
            raise TraceError(
                f"This run has more than {MAX_LINES:,} lines, the most that can be read."
            )
        with _admitted(address):
            return _read(text)
    except TraceError as error:
        return {"error": str(error)}


@contextmanager
def _admitted(address: str) -> Iterator[None]:
    """Hold one of the reading slots. Raises TraceError if the address gets none."""
    with _places:
        if _reading.total() >= MAX_READ or _reading[address] >= MAX_OF_ONE:
            raise TraceError(BUSY)
        _reading[address] += 1
    try:
        yield
    finally:
        with _places:
            _reading.subtract([address])
            if not _reading[address]:
                del _reading[address]


class _Turns:
    """Turns of one reader. A turn lasts ``_AT_ONCE``, or until the end of the current line."""

    def __init__(self) -> None:
        self._spent = 0.0

    def __enter__(self) -> None:
        """Begin a turn. Raises TraceError after waiting too long."""
        if not _one_at_a_time.acquire(timeout=WAIT_SECONDS):
            raise TraceError(BUSY)
        self._began = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._spent += time.monotonic() - self._began
        _one_at_a_time.release()

    def is_over(self) -> bool:
        """Whether the turn is over. Raises TraceError after READ_SECONDS of turns."""
        taken = time.monotonic() - self._began
        if self._spent + taken > READ_SECONDS:
            raise TraceError(
                f"Reading this run takes longer than {READ_SECONDS:g} s. Import a shorter one."
            )
        return taken > _AT_ONCE


def _read(text: str) -> dict[str, Any]:
    turns = _Turns()
    with turns:
        lines = text.split("\n")
        pin = _pin(lines[0])
        left = deque(lines if pin is None else ["", *lines[1:]])
    reader = TraceReader()
    while left:
        with turns:
            while left:
                reader.feed(left.popleft())
                if turns.is_over():
                    break
        if left:
            time.sleep(_PAUSE)
    with turns:
        return _answer(reader, pin)


def _answer(reader: TraceReader, pin: dict[str, Any] | None) -> dict[str, Any]:
    trace = reader.trace()
    _check(trace)
    answer = {"lines": list(trace.lines()), "pin": pin or {}}
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        raise TraceError("The file contains characters that are not valid text.") from None
    return answer


def _check(trace: Trace) -> None:
    """Reject a valid trace that cannot be compared with others."""
    rows = folds.rows(trace.events)
    if not rows:
        raise TraceError("This trace has no forward pass, so there is nothing to compare.")
    if rows != (0,):
        raise TraceError(f"This trace has {len(rows)} rows. Import a run of one prompt.")


def _pin(line: str) -> dict[str, Any] | None:
    """Parse the owner's notes; None if the first line is not a pin. Raises TraceError."""
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
        raise TraceError(
            f"The {key} of a pinned run must be a text of at most {most:,} characters."
        )
    return words


def _rating(value: Mapping[str, Any]) -> int:
    rating = value.get("rating", 0)
    if type(rating) is not int or not 0 <= rating <= MAX_RATING:
        raise TraceError(
            f"The rating of a pinned run must be a whole number from 0 (none) to {MAX_RATING}."
        )
    return rating
