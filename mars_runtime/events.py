"""What decoding says of itself: one immutable event per forward, plain Python values.

Knows no tensors, text or drawing. Every figure and picture is a fold over these events, so what a
reader needs later (all proposals, their confidences, the settings in force) is recorded here once
and nothing that can be derived is.

Types of the fields say what a trace from anybody may hold (``trace.py``); nothing is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainValidator

from mars_runtime.json_values import FIRST, Real, Seconds, Truth, Whole, as_list, as_real
from mars_runtime.settings import DecodeSettings, read_settings

MAX_ROWS, MAX_PROPOSALS, MAX_RUNNERS_UP = 256, 64, 64
MAX_BYTES = 2**50
RowNumber = Annotated[Whole, Field(le=MAX_ROWS)]
Few = Annotated[Whole, Field(le=MAX_PROPOSALS)]
Bytes = Annotated[Whole, Field(le=MAX_BYTES)]
Wholes = Annotated[tuple[Whole, ...], FIRST, Field(max_length=MAX_PROPOSALS)]
Chances = Annotated[tuple[tuple[Whole, Real], ...], FIRST, Field(max_length=MAX_RUNNERS_UP)]
Settings = Annotated[
    DecodeSettings, PlainValidator(read_settings, json_schema_input_type=DecodeSettings)
]

Stop = Literal["block", "threshold", "mismatch", "eos", "limit", "repeats"]
"""Why a step of a row accepted no more: ``block``, all B proposals were taken; ``threshold``, the
next proposal was below tau; ``mismatch``, AR disagreed with a draft (lossless); ``eos``, ``limit``
and ``repeats``, its text began to repeat itself (``loops.py``), end the row."""
FINAL: frozenset[Stop] = frozenset({"eos", "limit", "repeats"})
"""Those that end a row."""

Wait = Literal["block", "finished"]
"""Why a row sat idle in a forward: ``block``, its cache block is full and waits for the others;
``finished``, the row has ended and its place in the batch cannot be left."""

EndReason = Literal["eos", "limit", "repeats", "cancelled", "deadline", "error"]


class Proposal(NamedTuple):
    """The prediction of one slot. ``runners_up`` are (token id, probability), best first, without
    ``token``; ``confidence`` is by the metric in force, higher is surer."""

    token: Whole
    confidence: Real
    runners_up: Chances


@dataclass(frozen=True, slots=True)
class RowStep:
    """What one forward did for one row.

    row: which row of the run's batch (0 for a single prompt).
    start: how many tokens this row had emitted before; ``accepted[0]`` stands at that position.
    cursor: leading tokens with final K/V when the forward began.
    num_pending: real tokens fed after the cursor; num_fed: all tokens fed, masks included, but for
        those that fill a row up to the width of others.
    proposals: predictions from the first emitted position on, in order. The first ``len(accepted)``
        were emitted, the next ``num_drafted`` (lossless only) wait for verification, the rest were
        refused. Of several groups of masks it is the one after the last token that AR confirmed.
    accepted: token ids emitted by this forward, EOS included.
    stop: why no more were taken.
    block_size: B that was chosen for this forward, where the settings leave it to be chosen; 0
        where they name a number.
    checks: what AR would have chosen at the positions ``start - len(checks)`` to ``start - 1``, as
        (token id, probability): this forward fed their tokens again, now as real ones. At a
        temperature above 0 it is what AR would have drawn there with the same noise. Only in runs
        that ask for it, or whose threshold follows it; there is nothing to check of AR's own and
        of verified tokens, and no forward comes after the last one.
    groups: masks fed after each of the last ``len(groups)`` pending tokens, the last of them drafts
        all but the first; empty where masks stood after the last pending token alone.
    looked_up: tokens that wait for verification instead of proposals, because they followed where
        the last emitted ones had occurred before (``num_drafted`` is 0 then).
    guessed: tokens that wait for verification behind the drafts, put there by rule (jacobi) or by a
        draft model (speculative). num_draft_forwards: of that model, in the step's time; they count
        as no forward of the row.
    taken: positions, counted from ``start``, that this forward filled (block diffusion only):
        tokens leave in order, so some of ``accepted`` were taken by earlier forwards, what is taken
        behind an open position leaves later, and ``accepted`` may be empty.
    threshold: tau that was in force where the settings let it adapt; None where they fix it.
    """

    row: RowNumber
    start: Whole
    cursor: Whole
    num_pending: Whole
    num_fed: Whole
    proposals: Annotated[
        tuple[Annotated[Proposal, BeforeValidator(as_list)], ...],
        FIRST,
        Field(max_length=MAX_PROPOSALS),
    ]
    accepted: Wholes
    num_drafted: Whole
    settings: Settings
    stop: Stop
    block_size: Few = 0
    checks: Chances = ()
    groups: Wholes = ()
    looked_up: Wholes = ()
    guessed: Wholes = ()
    num_draft_forwards: Few = 0
    taken: Wholes = ()
    threshold: Annotated[float | None, PlainValidator(as_real, json_schema_input_type=float)] = None

    @property
    def drafts(self) -> tuple[int, ...]:
        """The tokens that wait for verification by the next forward, whoever proposed them."""
        first = len(self.accepted)
        waiting = self.proposals[first : first + self.num_drafted]
        return (*(self.looked_up or [each.token for each in waiting]), *self.guessed)


class IdleRow(NamedTuple):
    """A row that a forward fed without taking anything. ``cursor``, ``num_pending`` and ``num_fed``
    as in RowStep."""

    row: RowNumber
    wait: Wait
    cursor: Whole
    num_pending: Whole
    num_fed: Whole


@dataclass(frozen=True, slots=True)
class Prefill:
    """The prompts were read into the cache: ``num_tokens`` over all rows, ``seconds`` of device
    time. ``cache_bytes``: keys and values that were reserved for these rows, 0 if not told.
    num_reused: of the tokens, those whose keys and values earlier runs had left and that were not
    computed again."""

    num_tokens: Whole
    seconds: Seconds = 0.0
    cache_bytes: Bytes = 0
    num_reused: Whole = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One model forward of ``seconds`` (acceptance included) and what it did for each live row.

    idle: rows that were fed and had to wait. is_commit: the pending tokens of all rows became final
    with this forward and it carried no masks (block cache only).
    """

    rows: Annotated[tuple[RowStep, ...], FIRST, Field(max_length=MAX_ROWS)]
    seconds: Seconds = 0.0
    idle: Annotated[
        tuple[Annotated[IdleRow, BeforeValidator(as_list)], ...], FIRST, Field(max_length=MAX_ROWS)
    ] = ()
    is_commit: Annotated[Truth, Field(alias="commit")] = False


@dataclass(frozen=True, slots=True)
class End:
    """The run is over. ``message`` is empty, or one sentence for people."""

    reason: EndReason
    message: str = ""


Event = Prefill | Step | End
