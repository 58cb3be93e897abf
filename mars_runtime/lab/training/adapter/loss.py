"""Compute the loss of adapter training, and count the masks with the right prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.adapter.parameters import (
    MAX_CANDIDATES,
    FullWeights,
    Parameters,
    SamplerModule,
)
from mars_runtime.lab.training.adapter.streams import AnchoredBatch, read_clean, read_masks
from mars_runtime.lab.training.backbone import Backbone
from mars_runtime.model.predictions import STRIP_WIDTH, best_of

MASK_WEIGHT_DECAY = 0.8
MAX_MASKS_AT_ONCE = 1024
"""Maximum number of masks per matrix product with the output head, to limit memory."""


class TrainedVocabulary:
    """The tokens that occur in the training texts. Others are never a target, so the softmax of the
    loss leaves them out.
    """

    def __init__(self, model: Backbone, tokens: Tensor) -> None:
        """Build the vocabulary from sorted ids, and add others up to a multiple of STRIP_WIDTH."""
        others = torch.ones(len(model.embedding), dtype=torch.bool)
        others[tokens] = False
        missing = others.nonzero()[: -len(tokens) % STRIP_WIDTH, 0]
        tokens = torch.cat([tokens, missing]).sort().values
        self.tokens = tokens
        self.head = model.embedding[tokens].contiguous()
        self._row = torch.zeros(len(model.embedding), dtype=torch.long)
        self._row[tokens] = torch.arange(len(tokens))

    def rows(self, ids: Tensor) -> Tensor:
        return self._row[ids]

    def logits(self, h: Tensor) -> Tensor:
        return F.linear(h.to(self.head.dtype), self.head)


@dataclass(frozen=True, slots=True)
class Terms:
    """The loss of a batch. masks: number of masks with a target. first: share of groups in which
    the first mask is right.
    """

    loss: Tensor
    masks: int
    first: float


def batch_loss(
    model: Backbone,
    parameters: Parameters | FullWeights,
    vocabulary: TrainedVocabulary,
    batch: AnchoredBatch,
    num_masks: int,
    until_miss: bool,
) -> Terms:
    """Return ``mask_loss``, without gradients of the clean stream. If all weights are trained, both
    streams have gradients, and the SFT loss of the clean stream is added (paper, section 3.2).
    """
    is_full = isinstance(parameters, FullWeights)
    if isinstance(parameters, FullWeights):
        model = parameters.backbone(model.embedding.dtype)
    with torch.set_grad_enabled(is_full):
        clean = read_clean(model, batch.ids)
    update = parameters.update(model.embedding.dtype)
    x = read_masks(model, clean, batch, parameters.embedding(num_masks), update)
    if not is_full:
        return mask_loss(model, vocabulary, x, batch, until_miss, parameters.sampler)
    terms = mask_loss(
        model, TrainedVocabulary(model, vocabulary.tokens), x, batch, until_miss, None
    )
    logits, targets = clean_logits(model, batch, clean.hidden)
    return replace(terms, loss=terms.loss + F.cross_entropy(logits, targets))


def mask_loss(
    model: Backbone,
    vocabulary: TrainedVocabulary,
    x: Tensor,
    batch: AnchoredBatch,
    until_miss: bool,
    sampler: SamplerModule | None,
) -> Terms:
    """Return the loss at the masks, plus the loss of the sampler head if there is one.

    Mask j of a group has the weight 0.8^(j-1) in the cross entropy. x: [N, A, M, H], residual
    stream of the masks. until_miss: ignore the masks after the first wrong one of a group, which
    verification never accepts (Spec-AUF, arXiv 2607.01893).
    """
    num_masks = x.shape[2]
    targets, counts = batch.targets(num_masks)
    weight = MASK_WEIGHT_DECAY ** torch.arange(num_masks) * counts
    chosen = counts.flatten().nonzero()[:, 0]
    h = model.normed(x).flatten(0, 2)[chosen]
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
    if sampler is not None:
        previous = model.embedding[batch.previous_tokens(num_masks).flatten()[chosen]]
        values, best = best_of(logits.detach(), MAX_CANDIDATES)
        scores = sampler(previous, h.detach(), vocabulary.head[best], values)
        loss = loss + _choice_loss(scores, best == rows[:, None], flat)
    return Terms(loss, len(chosen), first)


def reached(right: Tensor) -> Tensor:
    """Return 1 for each mask up to and including the first wrong one of its group, else 0."""
    before = torch.cat([torch.ones_like(right[..., :1]), right[..., :-1]], -1)
    return before.long().cumprod(-1)


def _choice_loss(scores: Tensor, is_target: Tensor, weight: Tensor) -> Tensor:
    """Return the mean cross entropy of the sampler head's choice, without masks whose candidates
    lack the target. scores, is_target: [N, C].
    """
    weight = weight * is_target.any(-1)
    losses = F.cross_entropy(scores, is_target.long().argmax(-1), reduction="none")
    return (losses * weight).sum() / weight.sum().clamp(min=1e-6)


@torch.no_grad()
def right_masks(
    model: Backbone, parameters: Parameters | FullWeights, batch: AnchoredBatch, num_masks: int
) -> list[list[int]]:
    """Return the number of masks before the first wrong one, for each text and each anchor."""
    clean = read_clean(model, batch.ids)
    update = parameters.update(model.embedding.dtype)
    x = read_masks(model, clean, batch, parameters.embedding(num_masks), update)
    targets, counts = batch.targets(num_masks)
    previous = batch.previous_tokens(num_masks).flatten()
    proposed = propose(model, parameters.sampler, x.flatten(0, 2), previous)
    right = (proposed.view(targets.shape) == targets) & counts
    leading = right.long().cumprod(-1).sum(-1)
    rows = zip(leading.tolist(), batch.is_real.tolist(), strict=True)
    return [[n for n, real in zip(*row, strict=True) if real] for row in rows]


def propose(model: Backbone, sampler: SamplerModule | None, x: Tensor, previous: Tensor) -> Tensor:
    """Return the tokens [N] that masks propose. x: [N, H], their residual stream. previous: [N],
    the token before each proposal.
    """
    if sampler is None:
        return torch.cat([model.greedy(rows) for rows in torch.split(x, MAX_MASKS_AT_ONCE)])
    tokens = []
    for rows, before in zip(
        torch.split(x, MAX_MASKS_AT_ONCE), torch.split(previous, MAX_MASKS_AT_ONCE), strict=True
    ):
        h = model.normed(rows)
        logits, best = best_of(model.head(h).float(), MAX_CANDIDATES)
        scores = sampler(model.embedding[before], h, model.embedding[best], logits)
        tokens.append(best.gather(1, scores.argmax(-1, keepdim=True))[:, 0])
    return torch.cat(tokens)


def clean_logits(model: Backbone, batch: AnchoredBatch, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits [N, V] that predict the tokens of the response, and these tokens [N].
    hidden: [rows, T, H], residual stream of the clean tokens.
    """
    position = torch.arange(batch.ids.shape[1] - 1)
    start = batch.start[:, None] - 1
    chosen = (position >= start) & (position < batch.length[:, None] - 1)
    logits = model.head(model.normed(hidden[:, :-1][chosen]))
    return logits.float(), batch.ids[:, 1:][chosen]


@torch.no_grad()
def agreement(model: Backbone, batches: list[AnchoredBatch]) -> float:
    """Return the share of held-out tokens, all greedy choices of the base, that ``model`` chooses
    too.
    """
    right = total = 0
    for batch in batches:
        logits, targets = clean_logits(model, batch, read_clean(model, batch.ids).hidden)
        right += int((logits.argmax(-1) == targets).sum())
        total += len(targets)
    return right / max(1, total)
