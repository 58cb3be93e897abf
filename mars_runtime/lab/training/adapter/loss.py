"""Losses at the masks, and which masks are right. Knows tensors only, not files or schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.adapter.parameters import CANDIDATES, Parameters
from mars_runtime.lab.training.adapter.streams import read_clean, read_masks
from mars_runtime.lab.training.adapter.texts import Batch
from mars_runtime.lab.training.backbone import Backbone

DECAY = 0.8


class Vocabulary:
    """The tokens that occur in the training texts: a softmax over these is a fraction of the work,
    and the others never are a target."""

    def __init__(self, model: Backbone, tokens: Tensor) -> None:
        """tokens: sorted ids [V']."""
        self.tokens = tokens
        self.head = model.embedding[tokens].contiguous()
        self._place = torch.zeros(len(model.embedding), dtype=torch.long)
        self._place[tokens] = torch.arange(len(tokens))

    def place(self, ids: Tensor) -> Tensor:
        """Rows of the smaller head."""
        return self._place[ids]

    def logits(self, h: Tensor) -> Tensor:
        """[N, H] normed -> [N, V'] in the dtype of the base."""
        return F.linear(h.to(self.head.dtype), self.head)


@dataclass(frozen=True, slots=True)
class Terms:
    """loss: what is minimised; masks: how many masks it was taken at; first: the share of first
    masks that are right."""

    loss: Tensor
    masks: int
    first: float


def mask_loss(
    model: Backbone,
    parameters: Parameters,
    vocabulary: Vocabulary,
    batch: Batch,
    num_masks: int,
    until_miss: bool,
) -> Terms:
    """Cross entropy at the masks, weighted by 0.8^(j-1).

    until_miss: leave out the masks after the first wrong one of their group, which no verification
    ever reaches (Spec-AUF, arXiv 2607.01893).
    """
    with torch.no_grad():
        clean = read_clean(model, batch.ids)
    update = parameters.update(model.embedding.dtype)
    x = read_masks(model, clean, batch, parameters.embedding(num_masks), update)
    return masked_terms(model, vocabulary, x, batch, num_masks, until_miss, parameters)


def masked_terms(
    model: Backbone,
    vocabulary: Vocabulary,
    x: Tensor,
    batch: Batch,
    num_masks: int,
    until_miss: bool,
    parameters: Parameters | None = None,
) -> Terms:
    """The loss at masks with residual stream ``x`` [N, A, M, H], that of the sampler head of
    ``parameters`` included where there is one."""
    targets, counts = batch.targets(num_masks)
    weight = DECAY ** torch.arange(num_masks) * counts
    chosen = counts.flatten().nonzero()[:, 0]
    h = model.normed(x).flatten(0, 2)[chosen]
    place = vocabulary.place(targets.flatten()[chosen])
    logits = vocabulary.logits(h)
    losses = F.cross_entropy(logits.float(), place, reduction="none")
    with torch.no_grad():
        right = torch.zeros(counts.numel(), dtype=torch.bool)
        right[chosen] = logits.gather(1, place[:, None])[:, 0] >= logits.amax(-1)
        right = right.view(counts.shape)
        if until_miss:
            weight = weight * reached(right)
        first = float(right[..., 0].sum() / counts[..., 0].sum().clamp(min=1))
    flat = weight.flatten()[chosen]
    loss = (losses * flat).sum() / flat.sum()
    if parameters is not None and parameters.sampler is not None:
        previous = previous_tokens(batch, num_masks).flatten()[chosen]
        loss = loss + sampler_loss(
            model, parameters, vocabulary, h.detach(), logits.detach(), previous, place, flat
        )
    return Terms(loss, len(chosen), first)


def previous_tokens(batch: Batch, num_masks: int) -> Tensor:
    """The token before each mask's target, [N, A, M]: that of position p + j for mask j after p."""
    place = batch.anchors[..., None] + torch.arange(1, num_masks + 1)
    place = place.clamp(max=batch.ids.shape[1] - 1)
    return batch.ids.gather(1, place.flatten(1)).view(place.shape)


def reached(right: Tensor) -> Tensor:
    """1 up to and with the first wrong mask of each group, then 0. right: [..., M] bool."""
    before = torch.cat([torch.ones_like(right[..., :1]), right[..., :-1]], -1)
    return before.long().cumprod(-1)


def sampler_loss(
    model: Backbone,
    parameters: Parameters,
    vocabulary: Vocabulary,
    h: Tensor,
    logits: Tensor,
    previous: Tensor,
    place: Tensor,
    weight: Tensor,
) -> Tensor:
    """Cross entropy of the re-ranked candidates where the target is one of them."""
    assert parameters.sampler is not None
    best = logits.topk(CANDIDATES).indices
    is_target = best == place[:, None]
    weight = weight * is_target.any(-1)
    direction = parameters.sampler(model.embedding[previous].float(), h)
    candidates = vocabulary.head[best].float()
    scores = logits.gather(1, best).float() + (candidates @ direction[:, :, None])[..., 0]
    losses = F.cross_entropy(scores, is_target.long().argmax(-1), reduction="none")
    return (losses * weight).sum() / weight.sum().clamp(min=1e-6)


class Learnt(Protocol):
    """What goes in for masks, whatever else learns."""

    def embedding(self, masks: int) -> Tensor: ...


@torch.no_grad()
def right_masks(
    model: Backbone, parameters: Learnt, batch: Batch, num_masks: int
) -> list[list[int]]:
    """For each text and anchor, how many leading masks are right, over the whole vocabulary."""
    clean = read_clean(model, batch.ids)
    adapter = parameters if isinstance(parameters, Parameters) else None
    update = adapter.update(model.embedding.dtype) if adapter else None
    x = read_masks(model, clean, batch, parameters.embedding(num_masks), update)
    targets, counts = batch.targets(num_masks)
    found = propose(model, adapter, x.flatten(0, 2), previous_tokens(batch, num_masks).flatten())
    right = (found.view(targets.shape) == targets) & counts
    leading = right.long().cumprod(-1).sum(-1)
    rows = zip(leading.tolist(), batch.is_real.tolist(), strict=True)
    return [[n for n, real in zip(*row, strict=True) if real] for row in rows]


def propose(model: Backbone, parameters: Parameters | None, x: Tensor, previous: Tensor) -> Tensor:
    """Proposed tokens [N] of masks with residual stream [N, H] after the tokens ``previous``."""
    if parameters is None or parameters.sampler is None:
        return torch.cat([model.greedy(rows) for rows in torch.split(x, 1024)])
    found = []
    for rows, before in zip(torch.split(x, 1024), torch.split(previous, 1024), strict=True):
        h = model.normed(rows)
        logits, best = model.head(h).float().topk(CANDIDATES)
        direction = parameters.sampler(model.embedding[before].float(), h)
        scores = logits + (model.embedding[best].float() @ direction[:, :, None])[..., 0]
        found.append(best.gather(1, scores.argmax(-1, keepdim=True))[:, 0])
    return torch.cat(found)
