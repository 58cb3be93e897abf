"""Events of decoding: one immutable event per forward pass, as plain Python values.

They contain what cannot be derived and nothing else. The field types define what an untrusted trace
may contain; ``trace.py`` validates with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainValidator

from mars_runtime.files.json_values import FIRST, Real, Seconds, Whole, as_list, as_real
from mars_runtime.settings import DecodeSettings, read_settings

MAX_ROWS, MAX_PROPOSALS, MAX_RUNNERS_UP = 256, 64, 64
MAX_BYTES = 2**50
RowNumber = Annotated[Whole, Field(le=MAX_ROWS)]
Few = Annotated[Whole, Field(le=MAX_PROPOSALS)]
Bytes = Annotated[Whole, Field(le=MAX_BYTES)]
Wholes = Annotated[tuple[Whole, ...], FIRST, Field(max_length=MAX_PROPOSALS)]
Pair = Annotated[tuple[Real, ...], FIRST, Field(max_length=2)]
Chances = Annotated[tuple[tuple[Whole, Real], ...], FIRST, Field(max_length=MAX_RUNNERS_UP)]
Settings = Annotated[
    DecodeSettings, PlainValidator(read_settings, json_schema_input_type=DecodeSettings)
]

Stop = Literal["block", "threshold", "mismatch", "eos", "limit", "repeats"]
"""Why a row accepted no more tokens in a step.

``block``: all B proposals were accepted. ``threshold``: the next proposal was below tau.
    ``mismatch``: AR disagreed with a draft. The other reasons end the row.
"""
FINAL: frozenset[Stop] = frozenset({"eos", "limit", "repeats"})
"""The values of ``Stop`` that end a row."""

EndReason = Literal["eos", "limit", "repeats", "cancelled", "deadline", "error"]


class Proposal(NamedTuple):
    """confidence: measured by the metric of the settings; higher is more certain.
    runners_up: other likely tokens as (token id, probability), best first.
    """

    token: Whole
    confidence: Real
    runners_up: Chances


@dataclass(frozen=True, slots=True)
class RowStep:
    """What one forward pass did for one row.

    row: index of the row in the run's batch.
    start: number of tokens that the row had emitted before, the position of ``accepted[0]``.
    cursor: number of leading tokens with final keys and values before the forward pass.
    num_pending: number of real tokens fed after the cursor.
    num_fed: number of all tokens fed, masks included, without padding to the width of other rows.
    proposals: predictions in order, from the first emitted position on. The first ``len(accepted)``
        were emitted, the next ``num_drafted`` await verification, and the others were rejected.
        With several mask groups, they come from the group after the last confirmed token.
    accepted: token ids emitted by this forward pass, EOS included.
    block_size: the automatically chosen B; 0 if the settings fix B.
    checks: AR's choices for the positions ``start - len(checks)`` to ``start - 1``, as (token id,
        probability), from the pass that fed their tokens again as real ones. Present only if the
        run requested them or its threshold depends on them.
    groups: number of masks fed after each of the last ``len(groups)`` pending tokens (all but the
        first of these are drafts); empty if only the last pending token had masks.
    looked_up: tokens from prompt lookup that await verification, instead of proposals.
    guessed: tokens after the drafts that await verification (jacobi, speculative).
    num_draft_forwards: forward passes of the draft model, part of the step's time.
    taken: positions, relative to ``start``, that this pass filled (block diffusion only).
    threshold: the tau that was used, if the settings let it adapt.
    declined: in the last step of a run with automatic B that fed hardly any masks: the tokens per
        pass that masks would have brought, and the cost of such a pass in passes of AR.
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
    declined: Pair = ()

    @property
    def drafts(self) -> tuple[int, ...]:
        first = len(self.accepted)
        waiting = self.proposals[first : first + self.num_drafted]
        return (*(self.looked_up or [proposal.token for proposal in waiting]), *self.guessed)


@dataclass(frozen=True, slots=True)
class Prefill:
    """num_tokens: number of prompt tokens in the KV cache, of all rows together.
    seconds: device time.
    cache_bytes: size of the keys and values reserved for the rows; 0 if unknown.
    num_reused: prompt tokens with keys and values that an earlier run computed.
    """

    num_tokens: Whole
    seconds: Seconds = 0.0
    cache_bytes: Bytes = 0
    num_reused: Whole = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass and its results for each live row.

    seconds: device time, including acceptance.
    """

    rows: Annotated[tuple[RowStep, ...], FIRST, Field(max_length=MAX_ROWS)]
    seconds: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """``message`` is empty or one sentence for the visitor."""

    reason: EndReason
    message: str = ""


Event = Prefill | Step | End
