"""Validate an untrusted trace and write it again in canonical form. Each error is one sentence.

The number of traces that are read at the same time is limited, in total and per address, and they
are read in turns.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mars_runtime.runs import folds
from mars_runtime.runs.trace import Trace, TraceError, TraceReader
from mars_runtime.serving.limits import AddressCounter

MAX_LINES = 20_000
READ_SECONDS = 10.0  # time limit for one trace; the longest run of this program needs far less
MAX_READ, MAX_OF_ONE = 5, 2  # maximum number of concurrent readers, in total and per address
WAIT_SECONDS = 2.0  # maximum time that a reader waits for its turn
BUSY = "The server is reading other runs. Import this run again in a moment."
_AT_ONCE, _PAUSE = 0.002, 0.0005  # seconds of a turn, and of the pause that lets other threads run
_one_at_a_time = threading.Lock()
_readers, _readers_lock = AddressCounter(MAX_OF_ONE, MAX_READ), threading.Lock()


def read_import(text: object, max_chars: int, address: str = "") -> dict[str, Any]:
    try:
        if not isinstance(text, str):
            raise TraceError("This file is not text. Choose a saved run.")
        if len(text) > max_chars:
            raise TraceError(
                f"This run is larger than {max_chars / 1e6:g} MB. Import a smaller one."
            )
        if text.count("\n") >= MAX_LINES:
            raise TraceError(f"This run has more than {MAX_LINES:,} lines. Import a shorter one.")
        with _admitted(address):
            return _read(text)
    except TraceError as error:
        return {"error": str(error)}


@contextmanager
def _admitted(address: str) -> Iterator[None]:
    with _readers_lock:
        if not _readers.take(address):
            raise TraceError(BUSY)
    try:
        yield
    finally:
        with _readers_lock:
            _readers.release(address)


class _Turns:
    """The turns in which one reader parses a trace; only one reader has a turn at a time. A turn
    lasts ``_AT_ONCE`` seconds, or until the current line has been read.
    """

    def __init__(self) -> None:
        self._spent = 0.0

    def __enter__(self) -> None:
        """Wait for the turn. Raises TraceError after WAIT_SECONDS."""
        if not _one_at_a_time.acquire(timeout=WAIT_SECONDS):
            raise TraceError(BUSY)
        self._began = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._spent += time.monotonic() - self._began
        _one_at_a_time.release()

    def is_over(self) -> bool:
        """Whether the turn has ended. Raises TraceError if all turns took more than READ_SECONDS in
        total.
        """
        elapsed = time.monotonic() - self._began
        if self._spent + elapsed > READ_SECONDS:
            raise TraceError(
                f"Reading this run takes longer than {READ_SECONDS:g} s. Import a shorter one."
            )
        return elapsed > _AT_ONCE


def _read(text: str) -> dict[str, Any]:
    turns = _Turns()
    with turns:
        lines_left = deque(text.split("\n"))
    reader = TraceReader()
    while lines_left:
        with turns:
            while lines_left:
                reader.feed(lines_left.popleft())
                if turns.is_over():
                    break
        if lines_left:
            time.sleep(_PAUSE)
    with turns:
        return _answer(reader)


def _answer(reader: TraceReader) -> dict[str, Any]:
    trace = reader.trace()
    _check(trace)
    answer = {"lines": list(trace.lines())}
    try:
        json.dumps(answer, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        raise TraceError("The file contains characters that are not valid text.") from None
    return answer


def _check(trace: Trace) -> None:
    rows = folds.rows(trace.events)
    if not rows:
        raise TraceError(
            "This run has no forward passes, so it cannot be compared. Import another."
        )
    if rows != (0,):
        raise TraceError(f"This run has {len(rows)} prompts. Import a run with one prompt.")
