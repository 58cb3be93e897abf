"""Write and read traces: the header and the events of one run, as JSON Lines.

Floats are written in full, because a rounded confidence could be on the other side of tau. Lines
are pure ASCII. Token bytes are latin-1 strings. Files are untrusted: the reader bounds all sizes
and validates every value; any fault raises a TraceError. Unknown keys are ignored. Annotations
(``annotations.py``) are written for the page and ignored by the reader.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import Field, PlainValidator, TypeAdapter, ValidationError

from mars_runtime.errors import MarsError
from mars_runtime.files.json_values import (
    FIRST,
    MAX_INT,
    NO_LIST,
    NO_WHOLE,
    Seconds,
    Truth,
    Whole,
    as_list,
    as_mapping,
    as_real,
    as_text,
    fault_of,
)
from mars_runtime.runs.annotations import AnnotationFold
from mars_runtime.runs.events import End, Event, Prefill, RowStep, Settings, Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Turn

VERSION = 1
OPTIONAL = (
    *("block_size", "checks", "groups", "looked_up", "guessed", "num_draft_forwards", "taken"),
    "declined",
)
"""Fields of a RowStep that are left out if they are empty or 0."""
MAX_LINE_CHARS = 2_000_000
MAX_TOTAL_CHARS = 128_000_000
MAX_EVENTS = 50_000
MAX_TOKEN_BYTES = 4096
MAX_DIGITS = 8
MAX_TURNS = 1000
MAX_COSTS = 64
NEEDED = {
    "header": ("hardware", "dtype", "versions", "threads", "date", "task", "name"),
    "prefill": ("seconds",),
    "step": ("seconds",),
    "end": ("message",),
}
"""Fields that are required in a trace although they have defaults in Python."""
UNKNOWN_TOKEN = "it has a token that is not in the vocabulary"
T = TypeVar("T")
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class TraceError(MarsError, ValueError):
    """A trace cannot be read. The message has the number of the invalid line."""


def _versions(value: Any) -> dict[str, str]:
    return {name: as_text(version) for name, version in as_mapping(value).items()}


def _costs(value: Any) -> Curves:
    curves = as_mapping(value)
    if not all(rows.isdecimal() and len(rows) < MAX_DIGITS for rows in curves):
        raise ValueError("its costs are damaged")
    for curve in curves.values():
        if len(as_list(curve)) > MAX_COSTS:
            raise ValueError(NO_LIST)
    return {int(rows): tuple(map(as_real, curve)) for rows, curve in curves.items()}


Versions = Annotated[
    dict[str, str], PlainValidator(_versions, json_schema_input_type=dict[str, str])
]
Curves = dict[int, tuple[float, ...]]
Costs = Annotated[Curves, PlainValidator(_costs, json_schema_input_type=Curves)]


@dataclass(frozen=True, slots=True)
class Header:
    """What is needed to repeat a run, and the machine on which it was measured.

    - settings: at the start of the run. date: ISO 8601 with time zone.
    - task: JSON values that the task's checker needs.
    - rho: number of rows -> relative times of forward passes of 1, 2, 3 ... tokens per row.
    - num_given: number of trailing ``prompt_ids`` that are the supplied beginning of the output.
    - forward_seconds: time of the shortest forward pass in ``rho``, 0 if unknown.
    - is_bitwise: whether the logits of a token do not depend on the other tokens in the forward
      pass. If not, lossless text can differ from AR's at near ties.
    - history, num_left_out, system: as in ``Context``; ``prompt_ids`` contain them.
    - room: maximum number of tokens of prompt and answer together, 0 if unknown.
    """

    checkpoint: str
    prompt: str
    prompt_ids: Annotated[tuple[Whole, ...], FIRST]
    settings: Settings
    hardware: str = ""
    dtype: str = ""
    versions: Versions = field(default_factory=dict)
    threads: Whole = 1
    date: str = ""
    task: dict[str, Any] | None = None
    name: str = ""
    rho: Costs = field(default_factory=dict)
    num_given: Whole = 0
    forward_seconds: Seconds = 0.0
    is_bitwise: Truth = False
    history: Annotated[tuple[Turn, ...], FIRST, Field(max_length=MAX_TURNS)] = ()
    num_left_out: Whole = 0
    room: Whole = 0
    system: str = ""

    @property
    def spelled_ids(self) -> tuple[int, ...]:
        """Token ids of earlier answers and of ``given``."""
        return (*(token for turn in self.history for token in turn.tokens), *self.given)

    @property
    def given(self) -> tuple[int, ...]:
        return self.prompt_ids[len(self.prompt_ids) - self.num_given :]


@dataclass(slots=True)
class Trace:
    header: Header
    events: list[Event]
    vocabulary: dict[int, bytes]

    @classmethod
    def of(
        cls, header: Header, events: Iterable[Event], token_bytes: Callable[[int], bytes]
    ) -> Trace:
        all_events = list(events)
        steps = [step for step in all_events if isinstance(step, Step)]
        ids = {token for step in steps for row in step.rows for token in token_ids(row)}
        return cls(
            header,
            all_events,
            {token: token_bytes(token) for token in ids.union(header.spelled_ids)},
        )

    def lines(self) -> Iterator[str]:
        writer = TraceWriter(self.header, self.vocabulary.__getitem__)
        yield writer.header_line()
        yield from map(writer.line, self.events)


def token_ids(row: RowStep) -> Iterator[int]:
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
    """Writes the lines of one trace, in order.

    A row's settings are written with its first step and when they change, the bytes of a token
    where it first occurs. ``line`` takes 20 to 50 microseconds per step, fast enough to follow a
    run live.
    """

    def __init__(self, header: Header, token_bytes: Callable[[int], bytes]) -> None:
        self._header = header
        self._token_bytes = token_bytes
        self._seen = set(header.spelled_ids)
        self._settings: dict[int, DecodeSettings] = {}
        self._folds: defaultdict[int, AnnotationFold] = defaultdict(AnnotationFold)

    def header_line(self) -> str:
        line = {"type": "header", "version": VERSION, **dataclasses.asdict(self._header)}
        vocabulary = self._spelled(self._header.spelled_ids)
        return _encode(line | ({"vocabulary": vocabulary} if vocabulary else {}))

    def line(self, event: Event) -> str:
        """Raises ValueError if a number is not finite."""
        if isinstance(event, Step):
            return self._step_line(event)
        if isinstance(event, Prefill):
            line = {"type": "prefill", "num_tokens": event.num_tokens, "seconds": event.seconds}
            fields = {name: getattr(event, name) for name in ("cache_bytes", "num_reused")}
            return _encode(line | {name: value for name, value in fields.items() if value})
        return _encode({"type": "end", "reason": event.reason, "message": event.message})

    def _step_line(self, step: Step) -> str:
        line: dict[str, Any] = {"type": "step", "seconds": step.seconds}
        line["rows"] = [self._row(row, step.seconds) for row in step.rows]
        new = self._new_tokens(token for row in step.rows for token in token_ids(row))
        if new:
            line["vocabulary"] = new
        return _encode(line)

    def _row(self, row: RowStep, seconds: float) -> dict[str, Any]:
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
        for name in OPTIONAL:
            if value := getattr(row, name):
                fields[name] = value
        if row.threshold is not None:
            fields["threshold"] = row.threshold
        fields.update(self._folds[row.row].add(row, seconds))
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


_HEADER, _PREFILL = TypeAdapter(Header), TypeAdapter(Prefill)
_STEP, _END = TypeAdapter(Step), TypeAdapter(End)


def read_trace(lines: Iterable[str | bytes]) -> Trace:
    """Read a trace from JSON Lines; blank lines are skipped. Raises TraceError."""
    reader = TraceReader()
    for line in lines:
        reader.feed(line)
    return reader.trace()


class TraceReader:
    """Do not continue to use a reader that has raised an error."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._events: list[Event] = []
        self._vocabulary: dict[int, bytes] = {}
        self._settings: dict[int, DecodeSettings] = {}
        self._num_emitted: dict[int, int] = {}
        self._num_chars = 0
        self._num_lines = 0

    def feed(self, line: str | bytes) -> None:
        self._num_lines += 1
        self._num_chars += len(line)
        try:
            if len(line) > MAX_LINE_CHARS or self._num_chars > MAX_TOTAL_CHARS:
                raise ValueError("the line or the file is too long")
            if not line.strip():
                return
            value = json.loads(line, parse_constant=_reject_constant)
            self._add(as_mapping(value))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise TraceError(
                f"Line {self._num_lines} cannot be read as part of a trace: {_reason(error)}."
            ) from error

    def trace(self) -> Trace:
        """Raises TraceError if there was no header."""
        if self._header is None:
            raise TraceError("This file is empty. Choose a trace file.")
        return Trace(self._header, self._events, self._vocabulary)

    def _add(self, line: dict[str, Any]) -> None:
        kind = line.get("type")
        if self._header is None:
            if kind != "header" or line.get("version") != VERSION:
                raise ValueError(f"the first line of a trace must be a header of version {VERSION}")
            self._add_vocabulary(line)
            self._header = header = _checked(_HEADER, "header", line)
            if header.num_given > len(header.prompt_ids):
                raise ValueError(NO_WHOLE)
            if not self._vocabulary.keys() >= set(header.spelled_ids):
                raise ValueError(UNKNOWN_TOKEN)
            return
        if self._events and isinstance(self._events[-1], End):
            raise ValueError("there are lines after the end")
        if len(self._events) >= MAX_EVENTS:
            raise ValueError(f"a trace can have at most {MAX_EVENTS:,} events")
        if kind == "step":
            self._events.append(self._step(line, self._header.settings))
        elif kind == "prefill":
            prefill = _checked(_PREFILL, kind, line)
            if prefill.num_reused > prefill.num_tokens:
                raise ValueError(NO_WHOLE)
            self._events.append(prefill)
        elif kind == "end":
            self._events.append(_checked(_END, kind, line))
        else:
            raise ValueError("its type must be header, prefill, step or end")

    def _add_vocabulary(self, line: Mapping[str, Any]) -> None:
        for token, spelled in as_mapping(line.get("vocabulary", {})).items():
            text = as_text(spelled)
            if not token.isdecimal() or len(text) > MAX_TOKEN_BYTES:
                raise ValueError("its vocabulary is damaged")
            number = int(token)
            if number > MAX_INT:
                raise ValueError(NO_WHOLE)
            self._vocabulary[number] = text.encode("latin-1")

    def _step(self, line: dict[str, Any], first: DecodeSettings) -> Step:
        self._add_vocabulary(line)
        rows = [self._with_settings(row, first) for row in as_list(line["rows"])]
        step = _checked(_STEP, "step", {**line, "rows": rows})
        for row in step.rows:
            self._settings[row.row] = row.settings
            if not all(token in self._vocabulary for token in token_ids(row)):
                raise ValueError(UNKNOWN_TOKEN)
            if len(row.checks) > row.start:
                raise ValueError(NO_LIST)
            if row.start != self._num_emitted.get(row.row, 0):
                raise ValueError("the step before this one is missing")
            self._num_emitted[row.row] = row.start + len(row.accepted)
        numbers = [row.row for row in step.rows]
        if len(set(numbers)) != len(numbers):
            raise ValueError("a row occurs twice in a step")
        return step

    def _with_settings(self, line: Any, first: DecodeSettings) -> Any:
        if not isinstance(line, dict) or "settings" in line:
            return line
        number = line.get("row")
        known = self._settings.get(number, first) if isinstance(number, int) else first
        return {**line, "settings": known}


def _checked(kind: TypeAdapter[T], name: str, line: dict[str, Any]) -> T:
    for needed in NEEDED[name]:
        line[needed]
    return kind.validate_python(line)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{str(error.args[0])!r} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it contains characters that are not allowed there"
    if isinstance(error, json.JSONDecodeError) or type(error) is TypeError:
        return "it is not valid JSON of a trace"
    if isinstance(error, ValidationError):
        return fault_of(error)[1].removesuffix(".")
    return str(error) if type(error) is ValueError else "it is damaged"
