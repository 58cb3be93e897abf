"""What a forward predicted, for all rows at once and without a word to the host.

The twin of ``acceptance.read``: the same tokens, confidences and runners-up, left on the device.
Knows logits and settings; knows no rows' history and no acceptance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_runtime.acceptance import draw_tokens, sureness
from mars_runtime.decoders.static.state import (
    METRIC,
    NUM_BEST,
    SEED,
    TEMPERATURE,
    TOP_P,
    Shape,
    State,
)
from mars_runtime.settings import METRICS

LANE = 128
"""Width of the strips that a vocabulary is cut into to find its best tokens in one pass."""

MIN_LANE = 16
SHORT = 4096
"""Vocabularies up to this size are searched directly."""


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
