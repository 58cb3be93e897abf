"""Reads the lines of a trace back, one at a time, and refuses everything that is not one.

A file may be broken, foreign or hostile: sizes are bounded, every value is checked, and any fault
becomes a TraceError with the line and one sentence. Unknown keys are skipped, so that later
versions may add some.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, cast, get_args

from mars_runtime.events import (
    End,
    EndReason,
    Event,
    IdleRow,
    Prefill,
    Proposal,
    RowStep,
    Step,
    Stop,
    Wait,
)
from mars_runtime.settings import DecodeSettings, SettingsError
from mars_runtime.trace import VERSION, Header, Trace, TraceError, token_ids

MAX_LINE_CHARS = 2_000_000
MAX_TOTAL_CHARS = 128_000_000
MAX_EVENTS = 50_000
MAX_ROWS = 256
MAX_PROPOSALS = 64
MAX_RUNNERS_UP = 64
MAX_TOKEN_BYTES = 4096
MAX_INT = 2**31 - 1
MAX_DIGITS = 8
MAX_BYTES = 2**50
_STOPS, _REASONS, _WAITS = get_args(Stop), get_args(EndReason), get_args(Wait)


class TraceReader:
    """Feed lines, then take the trace. A reader that has raised is of no further use."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._events: list[Event] = []
        self._vocabulary: dict[int, bytes] = {}
        self._settings: dict[int, DecodeSettings] = {}
        self._num_emitted: dict[int, int] = {}
        self._num_chars = 0
        self._num_lines = 0

    def feed(self, line: str | bytes) -> None:
        """Read one line. Raises TraceError."""
        self._num_lines += 1
        self._num_chars += len(line)
        try:
            if len(line) > MAX_LINE_CHARS or self._num_chars > MAX_TOTAL_CHARS:
                raise ValueError("it is too long for a trace")
            if not line.strip():
                return
            value = json.loads(line, parse_constant=_refuse_constant)
            self._take(_mapping(value))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise TraceError(
                f"Line {self._num_lines} cannot be read as part of a trace: {_reason(error)}."
            ) from error

    def trace(self) -> Trace:
        """What was read. Raises TraceError if there was no header."""
        if self._header is None:
            raise TraceError("This file is not a trace: it is empty.")
        return Trace(self._header, self._events, self._vocabulary)

    def _take(self, line: Mapping[str, Any]) -> None:
        kind = line.get("type")
        if self._header is None:
            if kind != "header" or line.get("version") != VERSION:
                raise ValueError(f"the first line of a trace is its header of version {VERSION}")
            self._header = _header(line)
            return
        if self._events and isinstance(self._events[-1], End):
            raise ValueError("there is more after the end")
        if len(self._events) >= MAX_EVENTS:
            raise ValueError(f"a trace has {MAX_EVENTS:,} events at most")
        if kind == "step":
            self._events.append(self._step(line, self._header.settings))
        elif kind == "prefill":
            num_tokens, seconds = _whole(line["num_tokens"]), _seconds(line["seconds"])
            cache_bytes = _whole(line.get("cache_bytes", 0), MAX_BYTES)
            self._events.append(Prefill(num_tokens, seconds, cache_bytes))
        elif kind == "end":
            reason, message = _one_of(line["reason"], _REASONS), _text(line["message"])
            self._events.append(End(cast(EndReason, reason), message))
        else:
            raise ValueError("its type is none of header, prefill, step and end")

    def _step(self, line: Mapping[str, Any], first: DecodeSettings) -> Step:
        for token, spelled in _mapping(line.get("vocabulary", {})).items():
            text = _text(spelled)
            if not token.isdecimal() or len(text) > MAX_TOKEN_BYTES:
                raise ValueError("its vocabulary is damaged")
            self._vocabulary[_whole(int(token))] = text.encode("latin-1")
        rows = [self._row(_mapping(row), first) for row in _items(line["rows"], MAX_ROWS)]
        idle = tuple(_idle(item) for item in _items(line.get("idle", []), MAX_ROWS))
        numbers = [row.row for row in rows] + [row.row for row in idle]
        if len(set(numbers)) != len(numbers):
            raise ValueError("a row comes twice in a step")
        is_commit = line.get("commit", False)
        if not isinstance(is_commit, bool):
            raise ValueError("whether a step is a commit is true or false")
        return Step(tuple(rows), _seconds(line["seconds"]), idle, is_commit)

    def _row(self, line: Mapping[str, Any], first: DecodeSettings) -> RowStep:
        row = _whole(line["row"], MAX_ROWS)
        if "settings" in line:
            self._settings[row] = _settings(line["settings"])
        start = _whole(line["start"])
        accepted = tuple(_whole(token) for token in _items(line["accepted"], MAX_PROPOSALS))
        proposals = tuple(_proposal(item) for item in _items(line["proposals"], MAX_PROPOSALS))
        step = RowStep(
            row=row,
            start=start,
            cursor=_whole(line["cursor"]),
            num_pending=_whole(line["num_pending"]),
            num_fed=_whole(line["num_fed"]),
            proposals=proposals,
            accepted=accepted,
            num_drafted=_whole(line["num_drafted"]),
            settings=self._settings.get(row, first),
            stop=cast(Stop, _one_of(line["stop"], _STOPS)),
            block_size=_whole(line.get("block_size", 0), MAX_PROPOSALS),
        )
        if not all(token in self._vocabulary for token in token_ids(step)):
            raise ValueError("it has a token that is not in the vocabulary")
        if start != self._num_emitted.get(row, 0):
            raise ValueError("a step before it is missing")
        self._num_emitted[row] = start + len(accepted)
        return step


def _header(line: Mapping[str, Any]) -> Header:
    versions = _mapping(line["versions"])
    task = line["task"]
    return Header(
        checkpoint=_text(line["checkpoint"]),
        prompt=_text(line["prompt"]),
        prompt_ids=tuple(_whole(token) for token in _items(line["prompt_ids"], MAX_INT)),
        settings=_settings(line["settings"]),
        hardware=_text(line["hardware"]),
        dtype=_text(line["dtype"]),
        versions={name: _text(version) for name, version in versions.items()},
        threads=_whole(line["threads"]),
        date=_text(line["date"]),
        task=None if task is None else dict(_mapping(task)),
        name=_text(line["name"]),
        rho=_rho(_mapping(line.get("rho", {}))),
    )


def _rho(curves: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    if not all(rows.isdecimal() and len(rows) < MAX_DIGITS for rows in curves):
        raise ValueError("its costs are damaged")
    return {
        int(rows): tuple(_real(cost) for cost in _items(curve, MAX_PROPOSALS))
        for rows, curve in curves.items()
    }


def _settings(value: Any) -> DecodeSettings:
    names = DecodeSettings.__slots__
    fields = _mapping(value)
    return DecodeSettings(**{name: fields[name] for name in names if name in fields})


def _proposal(value: Any) -> Proposal:
    token, confidence, runners_up = _items(value, 3)
    pairs = [_items(pair, 2) for pair in _items(runners_up, MAX_RUNNERS_UP)]
    return Proposal(
        _whole(token), _real(confidence), tuple((_whole(other), _real(p)) for other, p in pairs)
    )


def _idle(value: Any) -> IdleRow:
    row, wait, cursor, num_pending, num_fed = _items(value, 5)
    checked = cast(Wait, _one_of(wait, _WAITS))
    return IdleRow(_whole(row, MAX_ROWS), checked, *map(_whole, (cursor, num_pending, num_fed)))


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is expected")
    return value


def _items(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list is missing, or too long")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is expected")
    return value


def _one_of(value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"one of {', '.join(choices)} is expected")
    return str(value)


def _whole(value: Any, most: int = MAX_INT) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("a whole number is missing, or out of range")
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("a finite number is expected")
    return cast(float, value)


def _seconds(value: Any) -> float:
    seconds = _real(value)
    if seconds < 0:
        raise ValueError("seconds cannot be negative")
    return seconds


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{str(error.args[0])!r} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it holds characters that do not belong there"
    if isinstance(error, json.JSONDecodeError) or type(error) is TypeError:
        return "it is not valid JSON of a trace"
    if isinstance(error, SettingsError):
        return str(error).rstrip(".")
    return str(error) if type(error) is ValueError else "it is damaged"
