"""One step of all rows: input, forward, reading, judgement, next state and record, on the device.

Every shape is known beforehand and no number is read back, so the host only has to say which shape
comes next: a step can be captured once and replayed. What it did is found in ``State.ring``.

``read_slots`` is the twin of ``acceptance.read``, ``plan_rows`` and ``judge_rows`` those of
``acceptance.num_proposals`` and ``acceptance.judge``: the same decisions for all rows at once,
held against them in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.acceptance import draw_tokens, mix, sureness
from mars_runtime.decoders.base import CausalModel, Vocabulary, forbidden_ids
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.static.state import (
    BLOCK_SIZE,
    CURSOR,
    IS_LIVE,
    IS_LOSSLESS,
    LIMIT,
    METRIC,
    NUM_BEST,
    NUM_DRAFTS,
    NUM_EMITTED,
    NUM_GUESSES,
    NUM_PENDING,
    NUMBER,
    SEED,
    STOPS,
    TAKES_PART,
    TAU,
    TEMPERATURE,
    TOP_P,
    Shape,
    State,
)
from mars_runtime.settings import METRICS

BLOCK, THRESHOLD, MISMATCH, EOS, FULL = range(len(STOPS))

LANE = 128
"""Width of the strips that a vocabulary is cut into to find its best tokens in one pass."""

MIN_LANE = 16
SHORT = 4096
"""Vocabularies up to this size are searched directly."""


class StaticModel(CausalModel, Protocol):
    """A model whose forward can take its cursors from the device. ``kept``: what others keep with
    it for as long as it lives."""

    @property
    def kept(self) -> dict[str, Any]: ...
    def forward_at(
        self, tokens: Tensor, cache: Any, head: Tensor, cursors: Tensor, context: int
    ) -> Tensor: ...


class StaticStep:
    """The step as a function of the shape; model, cache and state stay where they are."""

    def __init__(
        self,
        model: StaticModel,
        vocabulary: Vocabulary,
        cache: Any,
        state: State,
        forced: ForcedAcceptance | None = None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._state = state
        self._mask = vocabulary.mask_id or 0  # 0 only where no row asks for masks
        self._forbidden = forbidden_ids(vocabulary, model)
        # A row of forced lengths must not end where random weights happen to say EOS.
        self._eos = self._ids(vocabulary.eos_ids if forced is None else ())
        self._forced = forced
        bounds = forced.bounds if forced else ()
        self._bounds = torch.tensor(bounds, dtype=torch.float64, device=model.device)

    def _ids(self, ids: Any) -> Tensor:
        return torch.tensor(sorted(ids), dtype=torch.long, device=self._model.device)

    @torch.inference_mode()
    def __call__(self, shape: Shape) -> None:
        """Take all rows one forward further and leave a record in the ring."""
        state = self._state.first(shape.num_rows)
        plan = plan_rows(state, shape)
        takes_part = (state.numbers[:, IS_LIVE] * state.wholes[:, TAKES_PART]).bool()
        columns = torch.arange(shape.num_queries, device=self._model.device)
        is_real = columns < plan.num_tokens.unsqueeze(1)
        fed = torch.where(is_real, state.pending[:, : shape.num_queries], self._mask)
        # A place that sits out writes behind the reach of any row, where nobody reads.
        parked = self._cache.capacity - shape.num_queries
        cursors = torch.where(takes_part, state.numbers[:, CURSOR], parked)
        head = plan.first_slot.unsqueeze(1) + columns[: shape.num_slots]
        head = head.clamp_(max=shape.num_queries - 1)
        logits = self._model.forward_at(fed, self._cache, head, cursors, shape.context)
        starts = cursors + plan.first_slot + 1
        reading = read_slots(logits, self._forbidden, state, starts, shape)
        counts = None
        if self._forced is not None:
            counts = forced_counts(state, self._bounds, self._forced.seed)
        judgements = judge_rows(reading, fed, plan, state, shape, self._eos, counts)
        moved = _moved(state, plan, judgements)
        write_record(state, takes_part, plan, reading, judgements, moved)
        _advance(state, takes_part & ~reading.is_broken, reading, judgements, moved)


def _moved(state: State, plan: RowPlans, judgements: Judgements) -> Tensor:
    """``State.numbers`` of the next step for a row that goes on, [R, 5]."""
    numbers = state.numbers
    num_pending = judgements.num_kept - judgements.num_agreed + judgements.num_guessed
    return torch.stack(
        [
            torch.ones_like(num_pending),
            numbers[:, CURSOR] + plan.first_slot + 1 + judgements.num_agreed,
            num_pending,
            judgements.num_kept - judgements.num_accepted + judgements.num_guessed,
            numbers[:, NUM_EMITTED] + judgements.num_accepted,
        ],
        1,
    )


def _advance(
    state: State, is_stepped: Tensor, reading: Reading, judgements: Judgements, moved: Tensor
) -> None:
    """Move on the rows that go on and mark those that have ended; all else stays as it is."""
    has_ended = is_stepped & ((judgements.stop == EOS) | (judgements.stop == FULL))
    goes_on = (is_stepped & ~has_ended).unsqueeze(1)
    state.numbers.copy_(torch.where(goes_on, moved, state.numbers))
    state.numbers[:, IS_LIVE].mul_(~has_ended)
    # As many as were read. Behind the kept tokens stands the last of them again: where there are
    # guesses those are they, and what lies behind the pending tokens is not looked at.
    num_slots = reading.tokens.shape[1]
    last = (judgements.num_kept - 1).unsqueeze(1)
    positions = torch.arange(num_slots, device=moved.device)
    at = (judgements.num_agreed.unsqueeze(1) + positions).minimum(last)
    pending = state.pending[:, :num_slots]
    pending.copy_(torch.where(goes_on, reading.tokens.gather(1, at), pending))


@dataclass(frozen=True, slots=True)
class Reading:
    """tokens: [R, H] int64. confidences: [R, H] fp64, by the metric of each row. best, ids:
    [R, H, NUM_BEST], highest first. is_broken: [R], the row's logits were no numbers."""

    tokens: Tensor
    confidences: Tensor
    best: Tensor
    ids: Tensor
    is_broken: Tensor


def read_slots(
    logits: Tensor, forbidden: Tensor, state: State, starts: Tensor, shape: Shape
) -> Reading:
    """Read logits [R, H, V] of any float dtype; they are written to. starts: [R], the absolute
    position that slot 0 predicts. The softmax is fp32: one kernel finds maximum and sum."""
    logits.index_fill_(-1, forbidden, -math.inf)
    probabilities = torch.softmax(logits, -1, dtype=torch.float32)
    best, ids = best_of(probabilities, min(NUM_BEST, logits.shape[-1]))
    tokens, surest, other = ids[..., 0], best[..., 0], _second(best)
    if shape.is_drawn:
        positions = starts.unsqueeze(1) + torch.arange(shape.num_slots, device=logits.device)
        reals = state.reals
        top_ps = reals[:, TOP_P].float() if shape.is_nucleus else None
        drawn = draw_tokens(
            logits.float(), reals[:, TEMPERATURE], state.wholes[:, SEED], positions, top_ps
        )
        tokens, surest = drawn.squeeze(-1), probabilities.gather(-1, drawn).squeeze(-1)
        other = torch.where(tokens == ids[..., 0], other, best[..., 0])
    metrics = state.wholes[:, METRIC].unsqueeze(1)
    sure = surest.double()
    margins = (sure - other).clamp_(min=0.0)
    confidences = torch.where(metrics == METRICS.index("margin"), margins, sure)
    if shape.is_entropy:
        calm = sureness(probabilities, logits.shape[-1] - len(forbidden)).squeeze(-1).double()
        confidences = torch.where(metrics == METRICS.index("entropy"), calm, confidences)
    is_broken = best[..., 0].isnan().any(-1)
    return Reading(tokens, confidences, best, ids, is_broken)


def _second(best: Tensor) -> Tensor:
    return best[..., 1] if best.shape[-1] > 1 else torch.zeros_like(best[..., 0])


def best_of(table: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As ``table.topk(count)``, [..., V] to two [..., count], fast where V is large.

    The best ``count`` numbers lie in the ``count`` strips with the best maxima, so one pass for the
    maxima leaves little to sort. Among equal numbers any may come first, as in topk.
    """
    lane = math.gcd(table.shape[-1], LANE)
    if table.shape[-1] <= SHORT or lane < MIN_LANE:
        best, ids = table.topk(count)
        return best, ids
    strips = table.view(*table.shape[:-1], -1, lane)
    which = strips.amax(-1).topk(count).indices
    near = strips.gather(-2, which.unsqueeze(-1).expand(*which.shape, lane)).flatten(-2)
    best, at = near.topk(count)
    return best, which.gather(-1, at // lane) * lane + at % lane


@dataclass(frozen=True, slots=True)
class RowPlans:
    """What one forward does for each row, all [R] int64: real tokens to feed, how many of them are
    drafts, predictions to read, tokens that may still leave."""

    num_tokens: Tensor
    num_drafts: Tensor
    num_slots: Tensor
    remaining: Tensor

    @property
    def first_slot(self) -> Tensor:
        """The slot that predicts the first position not yet emitted."""
        return self.num_tokens - self.num_drafts - 1


@dataclass(frozen=True, slots=True)
class Judgements:
    """What becomes of the predictions, all [R] int64: drafts that AR confirmed, tokens that leave,
    tokens kept (those that leave and the drafts behind them), an index of STOPS, and guesses that
    say the last kept token again."""

    num_agreed: Tensor
    num_accepted: Tensor
    num_kept: Tensor
    stop: Tensor
    num_guessed: Tensor


def plan_rows(state: State, shape: Shape) -> RowPlans:
    """Drafts are dropped where lossless was switched off or the limit was lowered."""
    numbers, wholes = state.numbers, state.wholes
    num_drafts = numbers[:, NUM_DRAFTS]
    emitted_ones = numbers[:, NUM_PENDING] - num_drafts
    remaining = (wholes[:, LIMIT] - numbers[:, NUM_EMITTED]).clamp_(min=1)
    if not shape.is_lossless:
        none = torch.zeros_like(num_drafts)
        return RowPlans(emitted_ones, none, wholes[:, BLOCK_SIZE].minimum(remaining), remaining)
    lossless = wholes[:, IS_LOSSLESS]
    kept = num_drafts.minimum(remaining - 1) * lossless
    guesses = wholes[:, NUM_GUESSES]
    kept = torch.where(guesses >= 0, kept.minimum(guesses), kept)
    room = (remaining - (kept + 1) * lossless).clamp_(min=1)
    num_slots = kept + wholes[:, BLOCK_SIZE].minimum(room)
    return RowPlans(emitted_ones + kept, kept, num_slots, remaining)


def judge_rows(
    reading: Reading,
    fed: Tensor,
    plan: RowPlans,
    state: State,
    shape: Shape,
    eos: Tensor,
    forced: Tensor | None,
) -> Judgements:
    """Verify drafts, accept proposals from left to right, end at EOS or the limit.

    fed: ids [R, Q]. eos: ids [E]. forced: [R] int64, tokens to take whatever the model thinks.
    """
    positions = torch.arange(shape.num_slots, device=fed.device)
    taken = _num_taken(reading, plan, state, shape, positions, forced)
    stop = torch.where(taken < plan.num_slots, THRESHOLD, BLOCK)
    agreed, accepted, kept = torch.zeros_like(taken), taken, taken
    guesses = state.wholes[:, NUM_GUESSES]
    if shape.is_lossless:
        agreed = plan.num_drafts
        if forced is None:
            at = (plan.first_slot.unsqueeze(1) + 1 + positions).clamp_(max=shape.num_queries - 1)
            is_same = fed.gather(1, at) == reading.tokens
            agreed = _run_length(is_same & (positions < plan.num_drafts.unsqueeze(1)))
        is_confirmed = agreed == plan.num_drafts
        is_lossless = state.wholes[:, IS_LOSSLESS].bool()
        accepted = torch.where(is_confirmed & ~is_lossless, taken, agreed + 1)
        kept = torch.where(is_confirmed, taken, agreed + 1)
        most = (accepted + guesses).minimum(plan.remaining - 1)  # what one more may follow
        kept = torch.where(guesses >= 0, taken.minimum(most.maximum(accepted)), kept)
        stop = torch.where(is_confirmed, stop, MISMATCH)
    is_eos = (reading.tokens.unsqueeze(-1) == eos).any(-1)
    through_eos = torch.where(is_eos, positions, shape.num_slots).amin(1) + 1
    has_ended = through_eos <= accepted
    accepted = accepted.minimum(through_eos)
    is_full = accepted >= plan.remaining
    kept = torch.where(is_full, accepted, kept.minimum(through_eos))
    stop = torch.where(has_ended, EOS, torch.where(is_full, FULL, stop))
    room = guesses.minimum(plan.remaining - accepted - 1) - (kept - accepted)
    num_guessed = room.clamp_(min=0) * (through_eos > kept)
    return Judgements(agreed, accepted, kept, stop, num_guessed)


def _num_taken(
    reading: Reading,
    plan: RowPlans,
    state: State,
    shape: Shape,
    positions: Tensor,
    forced: Tensor | None,
) -> Tensor:
    """[R]: the drafts, the first proposal, and those behind it while confidence >= tau."""
    if forced is not None:
        return plan.num_slots.minimum(plan.num_drafts + forced)
    if shape.num_slots == 1:
        return torch.ones_like(plan.num_slots)
    is_sure = reading.confidences >= state.reals[:, TAU].unsqueeze(1)
    is_given = positions <= plan.num_drafts.unsqueeze(1)
    return _run_length((is_sure | is_given) & (positions < plan.num_slots.unsqueeze(1)))


def _run_length(is_good: Tensor) -> Tensor:
    """[R, H] to [R]: how many are good from the left on."""
    return is_good.long().cumprod(1).sum(1)


def forced_counts(state: State, bounds: Tensor, seed: int) -> Tensor:
    """[R] int64: tokens to take, drawn by (seed, row, position in the answer)."""
    key = mix(
        mix(state.wholes[:, NUMBER] + (seed << 20)).bitwise_xor(state.numbers[:, NUM_EMITTED])
    )
    uniform = ((key >> 20) & 0x7FFFFF).double() * 2.0**-23
    return 1 + (uniform.unsqueeze(1) >= bounds).sum(1)


def write_record(
    state: State,
    takes_part: Tensor,
    plan: RowPlans,
    reading: Reading,
    judgements: Judgements,
    moved: Tensor,
) -> None:
    """Write one step into the ring, before the state moves on. moved: the next ``numbers``."""
    heads = [
        takes_part.long(),
        reading.is_broken.long(),
        state.numbers[:, CURSOR],
        state.numbers[:, NUM_EMITTED],
        plan.num_tokens,
        plan.num_drafts,
        plan.num_slots,
        judgements.num_accepted,
        judgements.num_kept - judgements.num_accepted,
        judgements.stop,
        moved[:, CURSOR],
        moved[:, NUM_PENDING],
    ]
    missing = (0, NUM_BEST - reading.best.shape[-1])
    slots = torch.cat(
        [
            reading.tokens.unsqueeze(-1).double(),
            reading.confidences.unsqueeze(-1),
            F.pad(reading.best, missing).double(),
            F.pad(reading.ids, missing).double(),
        ],
        -1,
    )
    record = torch.cat([torch.stack(heads, 1).double(), slots.flatten(1)], 1).view(1, -1)
    ring = state.ring[:, : record.shape[1]]
    ring.index_copy_(0, state.tick % len(ring), record)
    state.tick.add_(1)
