"""Traces: a header and the events of one run, as values and as JSON Lines.

A trace as text has one JSON object per line: the header, then one event per line, as it happened.
Floats are written in full (Python's shortest text that gives the same double), because a rounded
confidence could fall on the other side of tau, and trace -> text -> trace would no longer be the
identity. Lines are pure ASCII: token bytes travel as latin-1 strings, control characters escaped.

They are read back one at a time, and everything that is not one is refused. A file may be broken,
foreign or hostile: sizes are bounded, every value is checked, and any fault becomes a TraceError
with the line and one sentence. Unknown keys are skipped, so that later versions may add some.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
from mars_runtime.json_values import (
    MAX_INT,
    as_items,
    as_mapping,
    as_real,
    as_seconds,
    as_text,
    as_truth,
    as_whole,
    one_of,
)
from mars_runtime.settings import SETTINGS, DecodeSettings, SettingsError
from mars_runtime.text import Turn

VERSION = 1
TOLD = ("block_size", "checks", "groups", "looked_up", "guessed", "num_draft_forwards", "taken")
"""Fields of a row's step that are written only where they say something."""
MAX_LINE_CHARS = 2_000_000
MAX_TOTAL_CHARS = 128_000_000
MAX_EVENTS = 50_000
MAX_ROWS = 256
MAX_PROPOSALS = 64
MAX_RUNNERS_UP = 64
MAX_TOKEN_BYTES = 4096
MAX_DIGITS = 8
MAX_TURNS = 1000
MAX_BYTES = 2**50
_STOPS, _REASONS, _WAITS = get_args(Stop), get_args(EndReason), get_args(Wait)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class TraceError(ValueError):
    """A trace that cannot be read; one sentence that says where it is broken."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a run was: enough to repeat it and to say on what its figures were measured.

    settings: in force at the start; date: ISO 8601 with its zone; threads: of the arithmetic;
    versions: program or library -> version; task: JSON values that let a task judge the text; rho:
    number of rows -> times of forwards of 1, 2, 3 ... tokens per row over that of 1, on this
    device; num_given: the last so many of ``prompt_ids`` are the beginning of the output, given
    beforehand; slot_bytes: keys and values of one token in the cache, 0 if not told;
    forward_seconds: of the shortest forward of ``rho``, 0 if not told; is_bitwise: whether what a
    token gives depends on nothing else in a forward, to the last bit. Where it does, lossless is AR
    up to near ties. history, num_left_out: as in ``Context``, which are in ``prompt_ids`` before
    ``prompt``; room: tokens that a prompt and its answer may have together, 0 if not told.
    """

    checkpoint: str
    prompt: str
    prompt_ids: tuple[int, ...]
    settings: DecodeSettings
    hardware: str = ""
    dtype: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    date: str = ""
    task: dict[str, Any] | None = None
    name: str = ""
    rho: dict[int, tuple[float, ...]] = field(default_factory=dict)
    num_given: int = 0
    slot_bytes: int = 0
    forward_seconds: float = 0.0
    is_bitwise: bool = False
    history: tuple[Turn, ...] = ()
    num_left_out: int = 0
    room: int = 0

    @property
    def told(self) -> tuple[int, ...]:
        """The tokens whose bytes come with the header: of earlier answers, and the given ones."""
        return (*(token for turn in self.history for token in turn.tokens), *self.given)

    @property
    def given(self) -> tuple[int, ...]:
        """The tokens of the output that were given."""
        return self.prompt_ids[len(self.prompt_ids) - self.num_given :]


@dataclass(slots=True)
class Trace:
    """A header, its events and the bytes of every token that occurs in them."""

    header: Header
    events: list[Event]
    vocabulary: dict[int, bytes]

    @classmethod
    def of(
        cls, header: Header, events: Iterable[Event], token_bytes: Callable[[int], bytes]
    ) -> Trace:
        """The trace of ``events``; ``token_bytes`` as in ``Tokenizer``."""
        kept = list(events)
        steps = [step for step in kept if isinstance(step, Step)]
        ids = {token for step in steps for row in step.rows for token in token_ids(row)}
        return cls(header, kept, {token: token_bytes(token) for token in ids.union(header.told)})

    def lines(self) -> Iterator[str]:
        """The trace as JSON Lines, without line ends, header first."""
        writer = TraceWriter(self.header, self.vocabulary.__getitem__)
        yield writer.header_line()
        yield from map(writer.line, self.events)


def token_ids(row: RowStep) -> Iterator[int]:
    """Every token id that a row's step mentions: accepted, looked up, guessed, proposed,
    runners-up, checks."""
    yield from row.accepted
    yield from row.looked_up
    yield from row.guessed
    for token, _ in row.checks:
        yield token
    for proposal in row.proposals:
        yield proposal.token
        for token, _ in proposal.runners_up:
            yield token


class TraceWriter:
    """Events of one trace to lines, in the order in which they happened.

    A row's settings are written with its first step and when they differ from its previous ones, a
    token's bytes when the token is first mentioned (``Header.told`` in the header's line). ``line``
    takes some 20 to 50 microseconds for a step, so that a page can follow a fast run.
    """

    def __init__(self, header: Header, token_bytes: Callable[[int], bytes]) -> None:
        self._header = header
        self._token_bytes = token_bytes
        self._seen = set(header.told)
        self._settings: dict[int, DecodeSettings] = {}

    def header_line(self) -> str:
        """The first line, however often it is asked for."""
        line = {"type": "header", "version": VERSION, **dataclasses.asdict(self._header)}
        told = self._spelled(self._header.told)
        return _encode(line | ({"vocabulary": told} if told else {}))

    def line(self, event: Event) -> str:
        """The line of one event. Raises ValueError if a number in it is not finite."""
        if isinstance(event, Step):
            return self._step_line(event)
        if isinstance(event, Prefill):
            line = {"type": "prefill", "num_tokens": event.num_tokens, "seconds": event.seconds}
            told = {name: getattr(event, name) for name in ("cache_bytes", "num_reused")}
            return _encode(line | {name: value for name, value in told.items() if value})
        return _encode({"type": "end", "reason": event.reason, "message": event.message})

    def _step_line(self, step: Step) -> str:
        line: dict[str, Any] = {"type": "step", "seconds": step.seconds}
        line["rows"] = [self._row(row) for row in step.rows]
        if step.idle:
            line["idle"] = step.idle
        if step.is_commit:
            line["commit"] = True
        new = self._new_tokens(token for row in step.rows for token in token_ids(row))
        if new:
            line["vocabulary"] = new
        return _encode(line)

    def _row(self, row: RowStep) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "row": row.row,
            "start": row.start,
            "cursor": row.cursor,
            "num_pending": row.num_pending,
            "num_fed": row.num_fed,
            "proposals": row.proposals,
            "accepted": row.accepted,
            "num_drafted": row.num_drafted,
            "stop": row.stop,
        }
        for name in TOLD:
            if value := getattr(row, name):
                fields[name] = value
        if row.threshold is not None:
            fields["threshold"] = row.threshold
        known = self._settings.get(row.row)
        if row.settings is not known:
            self._settings[row.row] = row.settings
            if row.settings != known:
                fields["settings"] = dataclasses.asdict(row.settings)
        return fields

    def _new_tokens(self, tokens: Iterable[int]) -> dict[int, str]:
        new = set(tokens) - self._seen
        self._seen |= new
        return self._spelled(new)

    def _spelled(self, tokens: Iterable[int]) -> dict[int, str]:
        return {token: self._token_bytes(token).decode("latin-1") for token in sorted(set(tokens))}


def read_trace(lines: Iterable[str | bytes]) -> Trace:
    """The trace in ``lines`` (JSON Lines; blank lines are skipped).

    Raises TraceError, one sentence, for anything that a TraceWriter would not have written.
    """
    reader = TraceReader()
    for line in lines:
        reader.feed(line)
    return reader.trace()


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
            self._take(as_mapping(value))
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
            self._learn(line)
            self._header = _header(line)
            if not self._vocabulary.keys() >= set(self._header.told):
                raise ValueError("it has a token that is not in the vocabulary")
            return
        if self._events and isinstance(self._events[-1], End):
            raise ValueError("there is more after the end")
        if len(self._events) >= MAX_EVENTS:
            raise ValueError(f"a trace has {MAX_EVENTS:,} events at most")
        if kind == "step":
            self._events.append(self._step(line, self._header.settings))
        elif kind == "prefill":
            num_tokens, seconds = as_whole(line["num_tokens"]), as_seconds(line["seconds"])
            cache_bytes = as_whole(line.get("cache_bytes", 0), MAX_BYTES)
            num_reused = as_whole(line.get("num_reused", 0), num_tokens)
            self._events.append(Prefill(num_tokens, seconds, cache_bytes, num_reused))
        elif kind == "end":
            reason, message = one_of(line["reason"], _REASONS), as_text(line["message"])
            self._events.append(End(cast(EndReason, reason), message))
        else:
            raise ValueError("its type is none of header, prefill, step and end")

    def _learn(self, line: Mapping[str, Any]) -> None:
        for token, spelled in as_mapping(line.get("vocabulary", {})).items():
            text = as_text(spelled)
            if not token.isdecimal() or len(text) > MAX_TOKEN_BYTES:
                raise ValueError("its vocabulary is damaged")
            self._vocabulary[as_whole(int(token))] = text.encode("latin-1")

    def _step(self, line: Mapping[str, Any], first: DecodeSettings) -> Step:
        self._learn(line)
        rows = [self._row(as_mapping(row), first) for row in as_items(line["rows"], MAX_ROWS)]
        idle = tuple(_idle(item) for item in as_items(line.get("idle", []), MAX_ROWS))
        numbers = [row.row for row in rows] + [row.row for row in idle]
        if len(set(numbers)) != len(numbers):
            raise ValueError("a row comes twice in a step")
        is_commit = as_truth(line.get("commit", False))
        return Step(tuple(rows), as_seconds(line["seconds"]), idle, is_commit)

    def _row(self, line: Mapping[str, Any], first: DecodeSettings) -> RowStep:
        row = as_whole(line["row"], MAX_ROWS)
        if "settings" in line:
            self._settings[row] = _settings(line["settings"])
        start = as_whole(line["start"])
        accepted = _wholes(line["accepted"])
        proposals = tuple(_proposal(item) for item in as_items(line["proposals"], MAX_PROPOSALS))
        step = RowStep(
            row=row,
            start=start,
            cursor=as_whole(line["cursor"]),
            num_pending=as_whole(line["num_pending"]),
            num_fed=as_whole(line["num_fed"]),
            proposals=proposals,
            accepted=accepted,
            num_drafted=as_whole(line["num_drafted"]),
            settings=self._settings.get(row, first),
            stop=cast(Stop, one_of(line["stop"], _STOPS)),
            block_size=as_whole(line.get("block_size", 0), MAX_PROPOSALS),
            checks=tuple(map(_chance, as_items(line.get("checks", []), min(start, MAX_PROPOSALS)))),
            groups=_wholes(line.get("groups", [])),
            looked_up=_wholes(line.get("looked_up", [])),
            guessed=_wholes(line.get("guessed", [])),
            taken=_wholes(line.get("taken", [])),
            num_draft_forwards=as_whole(line.get("num_draft_forwards", 0), MAX_PROPOSALS),
            threshold=as_real(line["threshold"]) if "threshold" in line else None,
        )
        if not all(token in self._vocabulary for token in token_ids(step)):
            raise ValueError("it has a token that is not in the vocabulary")
        if start != self._num_emitted.get(row, 0):
            raise ValueError("a step before it is missing")
        self._num_emitted[row] = start + len(accepted)
        return step


def _header(line: Mapping[str, Any]) -> Header:
    versions = as_mapping(line["versions"])
    task = line["task"]
    prompt_ids = tuple(as_whole(token) for token in as_items(line["prompt_ids"], MAX_INT))
    return Header(
        checkpoint=as_text(line["checkpoint"]),
        prompt=as_text(line["prompt"]),
        prompt_ids=prompt_ids,
        settings=_settings(line["settings"]),
        hardware=as_text(line["hardware"]),
        dtype=as_text(line["dtype"]),
        versions={name: as_text(version) for name, version in versions.items()},
        threads=as_whole(line["threads"]),
        date=as_text(line["date"]),
        task=None if task is None else dict(as_mapping(task)),
        name=as_text(line["name"]),
        rho=_rho(as_mapping(line.get("rho", {}))),
        num_given=as_whole(line.get("num_given", 0), len(prompt_ids)),
        slot_bytes=as_whole(line.get("slot_bytes", 0), MAX_BYTES),
        forward_seconds=as_seconds(line.get("forward_seconds", 0.0)),
        is_bitwise=as_truth(line.get("is_bitwise", False)),
        history=tuple(map(_turn, as_items(line.get("history", []), MAX_TURNS))),
        num_left_out=as_whole(line.get("num_left_out", 0)),
        room=as_whole(line.get("room", 0)),
    )


def _turn(value: Any) -> Turn:
    line = as_mapping(value)
    tokens = tuple(map(as_whole, as_items(line["tokens"], MAX_INT)))
    return Turn(as_text(line["prompt"]), tokens)


def _rho(curves: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    if not all(rows.isdecimal() and len(rows) < MAX_DIGITS for rows in curves):
        raise ValueError("its costs are damaged")
    return {
        int(rows): tuple(as_real(cost) for cost in as_items(curve, MAX_PROPOSALS))
        for rows, curve in curves.items()
    }


def _settings(value: Any) -> DecodeSettings:
    fields = as_mapping(value)
    return DecodeSettings(**{name: fields[name] for name in SETTINGS if name in fields})


def _proposal(value: Any) -> Proposal:
    token, confidence, runners_up = as_items(value, 3)
    chances = tuple(map(_chance, as_items(runners_up, MAX_RUNNERS_UP)))
    return Proposal(as_whole(token), as_real(confidence), chances)


def _wholes(value: Any) -> tuple[int, ...]:
    return tuple(map(as_whole, as_items(value, MAX_PROPOSALS)))


def _chance(value: Any) -> tuple[int, float]:
    """A token and its probability."""
    token, probability = as_items(value, 2)
    return as_whole(token), as_real(probability)


def _idle(value: Any) -> IdleRow:
    row, wait, cursor, num_pending, num_fed = as_items(value, 5)
    checked = cast(Wait, one_of(wait, _WAITS))
    return IdleRow(as_whole(row, MAX_ROWS), checked, *map(as_whole, (cursor, num_pending, num_fed)))


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
