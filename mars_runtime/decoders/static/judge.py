"""How much of a forward's predictions is taken, for all rows at once and on the device.

The twin of ``acceptance.judge`` and ``acceptance.num_proposals``, held against them in the tests.
Knows settings and predictions; knows no model, cache or host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mars_runtime.acceptance import mix
from mars_runtime.decoders.static.read import Reading
from mars_runtime.decoders.static.state import (
    BLOCK_SIZE,
    IS_LOSSLESS,
    LIMIT,
    NUM_DRAFTS,
    NUM_EMITTED,
    NUM_GUESSES,
    NUM_PENDING,
    NUMBER,
    STOPS,
    TAU,
    Shape,
    State,
)

BLOCK, THRESHOLD, MISMATCH, EOS, FULL = range(len(STOPS))


@dataclass(frozen=True, slots=True)
class Plan:
    """What one forward does for each row, all [R] int64: real tokens to feed, how many of them are
    drafts, predictions to read, tokens that may still leave."""

    num_tokens: Tensor
    num_drafts: Tensor
    num_slots: Tensor
    remaining: Tensor

    @property
    def first_slot(self) -> Tensor:
        """The slot that predicts the first place not yet emitted."""
        return self.num_tokens - self.num_drafts - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the predictions, all [R] int64: drafts that AR confirmed, tokens that leave,
    tokens kept (those that leave and the drafts behind them), an index of STOPS, and guesses that
    say the last kept token again."""

    num_agreed: Tensor
    num_accepted: Tensor
    num_kept: Tensor
    stop: Tensor
    num_guessed: Tensor


def plan_rows(state: State, shape: Shape) -> Plan:
    """Drafts are dropped where lossless was switched off or the limit was lowered."""
    numbers, wholes = state.numbers, state.wholes
    num_drafts = numbers[:, NUM_DRAFTS]
    emitted_ones = numbers[:, NUM_PENDING] - num_drafts
    remaining = (wholes[:, LIMIT] - numbers[:, NUM_EMITTED]).clamp_(min=1)
    if not shape.is_lossless:
        none = torch.zeros_like(num_drafts)
        return Plan(emitted_ones, none, wholes[:, BLOCK_SIZE].minimum(remaining), remaining)
    lossless = wholes[:, IS_LOSSLESS]
    kept = num_drafts.minimum(remaining - 1) * lossless
    guesses = wholes[:, NUM_GUESSES]
    kept = torch.where(guesses >= 0, kept.minimum(guesses), kept)
    room = (remaining - (kept + 1) * lossless).clamp_(min=1)
    num_slots = kept + wholes[:, BLOCK_SIZE].minimum(room)
    return Plan(emitted_ones + kept, kept, num_slots, remaining)


def judge_rows(
    reading: Reading,
    fed: Tensor,
    plan: Plan,
    state: State,
    shape: Shape,
    eos: Tensor,
    forced: Tensor | None,
) -> Verdict:
    """Verify drafts, accept proposals from left to right, end at EOS or the limit.

    fed: ids [R, Q]. eos: ids [E]. forced: [R] int64, tokens to take whatever the model thinks.
    """
    places = torch.arange(shape.num_slots, device=fed.device)
    taken = _num_taken(reading, plan, state, shape, places, forced)
    stop = torch.where(taken < plan.num_slots, THRESHOLD, BLOCK)
    agreed, accepted, kept = torch.zeros_like(taken), taken, taken
    guesses = state.wholes[:, NUM_GUESSES]
    if shape.is_lossless:
        agreed = plan.num_drafts
        if forced is None:
            at = (plan.first_slot.unsqueeze(1) + 1 + places).clamp_(max=shape.num_queries - 1)
            is_same = fed.gather(1, at) == reading.tokens
            agreed = _run_length(is_same & (places < plan.num_drafts.unsqueeze(1)))
        is_confirmed = agreed == plan.num_drafts
        is_lossless = state.wholes[:, IS_LOSSLESS].bool()
        accepted = torch.where(is_confirmed & ~is_lossless, taken, agreed + 1)
        kept = torch.where(is_confirmed, taken, agreed + 1)
        most = (accepted + guesses).minimum(plan.remaining - 1)  # what one more may follow
        kept = torch.where(guesses >= 0, taken.minimum(most.maximum(accepted)), kept)
        stop = torch.where(is_confirmed, stop, MISMATCH)
    is_eos = (reading.tokens.unsqueeze(-1) == eos).any(-1)
    through_eos = torch.where(is_eos, places, shape.num_slots).amin(1) + 1
    has_ended = through_eos <= accepted
    accepted = accepted.minimum(through_eos)
    is_full = accepted >= plan.remaining
    kept = torch.where(is_full, accepted, kept.minimum(through_eos))
    stop = torch.where(has_ended, EOS, torch.where(is_full, FULL, stop))
    room = guesses.minimum(plan.remaining - accepted - 1) - (kept - accepted)
    num_guessed = room.clamp_(min=0) * (through_eos > kept)
    return Verdict(agreed, accepted, kept, stop, num_guessed)


def _num_taken(
    reading: Reading,
    plan: Plan,
    state: State,
    shape: Shape,
    places: Tensor,
    forced: Tensor | None,
) -> Tensor:
    """[R]: the drafts, the first proposal, and those behind it while confidence >= tau."""
    if forced is not None:
        return plan.num_slots.minimum(plan.num_drafts + forced)
    if shape.num_slots == 1:
        return torch.ones_like(plan.num_slots)
    is_sure = reading.confidences >= state.reals[:, TAU].unsqueeze(1)
    is_given = places <= plan.num_drafts.unsqueeze(1)
    return _run_length((is_sure | is_given) & (places < plan.num_slots.unsqueeze(1)))


def _run_length(is_good: Tensor) -> Tensor:
    """[R, H] to [R]: how many are good from the left on."""
    return is_good.long().cumprod(1).sum(1)


def forced_counts(state: State, bounds: Tensor, seed: int) -> Tensor:
    """[R] int64: tokens to take, drawn by (seed, row, place in the answer)."""
    key = mix(
        mix(state.wholes[:, NUMBER] + (seed << 20)).bitwise_xor(state.numbers[:, NUM_EMITTED])
    )
    uniform = ((key >> 20) & 0x7FFFFF).double() * 2.0**-23
    return 1 + (uniform.unsqueeze(1) >= bounds).sum(1)
