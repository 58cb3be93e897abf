"""The loss of adapter training, and the number of masks with the right prediction."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.adapter.base import FrozenBase
from mars_runtime.lab.training.adapter.parameters import Parameters, SamplerModule
from mars_runtime.lab.training.adapter.streams import AnchoredBatch, read_clean, read_masks
from mars_runtime.model.predictions import STRIP_WIDTH, best_of

MASK_WEIGHT_DECAY = 0.8
MAX_CANDIDATES = 32
MAX_MASKS_AT_ONCE = 1024


class TrainedVocabulary:
    """The tokens of the training texts. Others are never targets, so the softmax omits them."""

    def __init__(self, base: FrozenBase, tokens: Tensor) -> None:
        others = torch.ones(len(base.embedding), dtype=torch.bool)
        others[tokens] = False
        missing = others.nonzero()[: -len(tokens) % STRIP_WIDTH, 0]
        tokens = torch.cat([tokens, missing]).sort().values
        self.head = base.embedding[tokens].contiguous()
        self._row = torch.zeros(len(base.embedding), dtype=torch.long)
        self._row[tokens] = torch.arange(len(tokens))

    def rows(self, ids: Tensor) -> Tensor:
        return self._row[ids]

    def logits(self, h: Tensor) -> Tensor:
        return F.linear(h.to(self.head.dtype), self.head)


@dataclass(frozen=True, slots=True)
class Terms:
    """masks: number of masks with a target. first: share of groups whose first mask is right."""

    loss: Tensor
    masks: int
    first: float


def _hidden(
    base: FrozenBase, parameters: Parameters, batch: AnchoredBatch, num_masks: int
) -> Tensor:
    clean = read_clean(base, batch.ids)
    with parameters.applied():
        return read_masks(base, clean, batch, parameters.embedding(num_masks))


def batch_loss(
    base: FrozenBase,
    parameters: Parameters,
    vocabulary: TrainedVocabulary,
    batch: AnchoredBatch,
    num_masks: int,
    until_miss: bool,
) -> Terms:
    """Mask j of a group has the weight 0.8^(j-1) in the cross entropy. until_miss: ignore the masks
    after the first wrong one of a group, which verification never accepts (Spec-AUF, arXiv
    2607.01893)."""
    targets, counts = batch.targets(num_masks)
    weight = MASK_WEIGHT_DECAY ** torch.arange(num_masks) * counts
    chosen = counts.flatten().nonzero()[:, 0]
    h = _hidden(base, parameters, batch, num_masks).flatten(0, 2)[chosen]
    rows = vocabulary.rows(targets.flatten()[chosen])
    logits = vocabulary.logits(h)
    losses = F.cross_entropy(logits.float(), rows, reduction="none")
    with torch.no_grad():
        right = torch.zeros(counts.numel(), dtype=torch.bool)
        right[chosen] = logits.gather(1, rows[:, None])[:, 0] >= logits.amax(-1)
        right = right.view(counts.shape)
        if until_miss:
            weight = weight * reached(right)
        first = float(right[..., 0].sum() / counts[..., 0].sum().clamp(min=1))
    flat = weight.flatten()[chosen]
    loss = (losses * flat).sum() / flat.sum()
    if parameters.sampler is not None:
        previous = base.embedding[batch.previous_tokens(num_masks).flatten()[chosen]]
        values, best = best_of(logits.detach(), MAX_CANDIDATES)
        scores = parameters.sampler(previous, h.detach(), vocabulary.head[best], values)
        loss = loss + _choice_loss(scores, best == rows[:, None], flat)
    return Terms(loss, len(chosen), first)


def reached(right: Tensor) -> Tensor:
    """Return 1 up to and including the first wrong mask of a group, else 0."""
    before = torch.cat([torch.ones_like(right[..., :1]), right[..., :-1]], -1)
    return before.long().cumprod(-1)


def _choice_loss(scores: Tensor, is_target: Tensor, weight: Tensor) -> Tensor:
    """Ignore masks whose candidates lack the target."""
    weight = weight * is_target.any(-1)
    losses = F.cross_entropy(scores, is_target.long().argmax(-1), reduction="none")
    return (losses * weight).sum() / weight.sum().clamp(min=1e-6)


@torch.no_grad()
def right_masks(
    base: FrozenBase, parameters: Parameters, batch: AnchoredBatch, num_masks: int
) -> list[list[int]]:
    """Return the number of right masks before the first wrong one, by text and anchor."""
    h = _hidden(base, parameters, batch, num_masks).flatten(0, 2)
    targets, counts = batch.targets(num_masks)
    previous = batch.previous_tokens(num_masks).flatten()
    pieces = zip(
        torch.split(h, MAX_MASKS_AT_ONCE), torch.split(previous, MAX_MASKS_AT_ONCE), strict=True
    )
    proposed = torch.cat([propose(base, parameters.sampler, *piece) for piece in pieces])
    right = (proposed.view(targets.shape) == targets) & counts
    leading = right.long().cumprod(-1).sum(-1)
    rows = zip(leading.tolist(), batch.is_real.tolist(), strict=True)
    return [[n for n, real in zip(*row, strict=True) if real] for row in rows]


def propose(base: FrozenBase, sampler: SamplerModule | None, h: Tensor, previous: Tensor) -> Tensor:
    """h: [N, H]. previous: [N], the token before each. Returns [N]."""
    logits, best = best_of(base.head(h).float(), MAX_CANDIDATES)
    candidates = base.embedding[best]
    if sampler is None:  # in float32, since bfloat16 logits do not distinguish near ties
        scores = (candidates.float() @ h[:, :, None])[..., 0]
    else:
        scores = sampler(base.embedding[previous], h, candidates, logits)
    return best.gather(1, scores.argmax(-1, keepdim=True))[:, 0]
