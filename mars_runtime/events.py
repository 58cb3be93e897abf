"""What decoding says of itself: one immutable event per forward, plain Python values.

Knows no tensors, text or drawing. Every figure and picture is a fold over these events, so what a
reader needs later (all proposals, their confidences, the settings in force) is recorded here once
and nothing that can be derived is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from mars_runtime.settings import DecodeSettings

Stop = Literal["block", "threshold", "mismatch", "eos", "limit"]
"""Why a step of a row accepted no more: ``block``, all B proposals were taken; ``threshold``, the
next proposal was below tau; ``mismatch``, AR disagreed with a draft (lossless); ``eos`` and
``limit`` end the row."""

Wait = Literal["block", "finished"]
"""Why a row sat idle in a forward: ``block``, its cache block is full and waits for the others;
``finished``, the row has ended and its place in the batch cannot be left."""

EndReason = Literal["eos", "limit", "cancelled", "deadline", "error"]


class Proposal(NamedTuple):
    """The prediction of one slot. ``runners_up`` are (token id, probability), best first, without
    ``token``; ``confidence`` is by the metric in force, higher is surer."""

    token: int
    confidence: float
    runners_up: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RowStep:
    """What one forward did for one row.

    row: which row of the run's batch (0 for a single prompt).
    start: how many tokens this row had emitted before; ``accepted[0]`` stands at that position.
    cursor: leading tokens with final K/V when the forward began.
    num_pending: real tokens fed after the cursor; num_fed: all tokens fed, masks included.
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

    row: int
    start: int
    cursor: int
    num_pending: int
    num_fed: int
    proposals: tuple[Proposal, ...]
    accepted: tuple[int, ...]
    num_drafted: int
    settings: DecodeSettings
    stop: Stop
    block_size: int = 0
    checks: tuple[tuple[int, float], ...] = ()
    groups: tuple[int, ...] = ()
    looked_up: tuple[int, ...] = ()
    guessed: tuple[int, ...] = ()
    num_draft_forwards: int = 0
    taken: tuple[int, ...] = ()
    threshold: float | None = None

    @property
    def drafts(self) -> tuple[int, ...]:
        """The tokens that wait for verification by the next forward, whoever proposed them."""
        first = len(self.accepted)
        waiting = self.proposals[first : first + self.num_drafted]
        return (*(self.looked_up or [each.token for each in waiting]), *self.guessed)


class IdleRow(NamedTuple):
    """A row that a forward fed without taking anything. ``cursor``, ``num_pending`` and ``num_fed``
    as in RowStep."""

    row: int
    wait: Wait
    cursor: int
    num_pending: int
    num_fed: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """The prompts were read into the cache: ``num_tokens`` over all rows, ``seconds`` of device
    time. ``cache_bytes``: keys and values that were reserved for these rows, 0 if not told.
    num_reused: of the tokens, those whose keys and values earlier runs had left and that were not
    computed again."""

    num_tokens: int
    seconds: float = 0.0
    cache_bytes: int = 0
    num_reused: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One model forward of ``seconds`` (acceptance included) and what it did for each live row.

    idle: rows that were fed and had to wait. is_commit: the pending tokens of all rows became final
    with this forward and it carried no masks (block cache only).
    """

    rows: tuple[RowStep, ...]
    seconds: float = 0.0
    idle: tuple[IdleRow, ...] = ()
    is_commit: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The run is over. ``message`` is empty, or one sentence for people."""

    reason: EndReason
    message: str = ""


Event = Prefill | Step | End
