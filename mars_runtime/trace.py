"""Traces: a header and the events of one run, as values and as JSON Lines.

Knows no model and no drawing; what can be derived is in ``folds.py``. The reader takes nothing on
trust: a file may come from anybody.

A trace as text has one JSON object per line: the header, then one event per line, as it happened.
Floats are written in full (Python's shortest text that gives the same double), because a rounded
confidence could fall on the other side of tau, and trace -> text -> trace would no longer be the
identity. Lines are pure ASCII: token bytes travel as latin-1 strings, control characters escaped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mars_runtime.events import Event, Prefill, RowStep, Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.turns import Turn

VERSION = 1
TOLD = ("block_size", "checks", "groups", "looked_up", "guessed", "num_draft_forwards", "taken")
"""Fields of a row's step that are written only where they say something."""
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
        fields = {f.name: getattr(self._header, f.name) for f in dataclasses.fields(Header)}
        fields["settings"] = dataclasses.asdict(self._header.settings)
        fields["history"] = [dataclasses.asdict(turn) for turn in self._header.history]
        line = {"type": "header", "version": VERSION, **fields}
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
            line["idle"] = [dataclasses.astuple(idle) for idle in step.idle]
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
            "proposals": [(p.token, p.confidence, p.runners_up) for p in row.proposals],
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
