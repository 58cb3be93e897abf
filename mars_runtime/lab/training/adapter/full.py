"""The paper's fine-tuning of all weights, on the texts and with the masks of an adapter's training.

Both streams pass through the weights that learn, and the loss at the masks is joined by that of the
clean stream, the SFT loss (paper, section 3.2). It is there to be measured beside the adapter, in
tokens per forward and in what it does to plain decoding; nothing of it is saved. Knows no files.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mars_runtime.lab.training.adapter.loss import Terms, Vocabulary, masked_terms
from mars_runtime.lab.training.adapter.streams import read_clean, read_masks
from mars_runtime.lab.training.adapter.texts import Batch
from mars_runtime.lab.training.backbone import Backbone
from mars_runtime.lab.training.base import Base

LEARNING_RATE = 1e-4
"""Peak for weights that were trained before: ten times less than that of new ones."""


class FullWeights(nn.Module):
    """float32 masters of all weights of a base, and of the embedding of its masks."""

    def __init__(self, base: Base) -> None:
        super().__init__()
        self._base = base
        device = torch.get_default_device()
        self._names = list(base.weights)
        self.weights = nn.ParameterList(
            nn.Parameter(weight.to(device, torch.float32)) for weight in base.weights.values()
        )
        embedding = base.weights["model.embed_tokens.weight"].float().mean(0, keepdim=True)
        self.mask_embedding = nn.Parameter(embedding.to(device))

    def backbone(self, dtype: torch.dtype) -> Backbone:
        """The model of this moment; gradients reach the masters through it."""
        weights = dict(zip(self._names, self.weights, strict=True))
        base = Base(self._base.name, self._base.config, weights, self._base.tokenizer)
        return Backbone(base, dtype)

    def embedding(self, masks: int) -> Tensor:
        """[masks, H], the same for every place."""
        return self.mask_embedding.expand(masks, -1)


def full_loss(
    weights: FullWeights,
    dtype: torch.dtype,
    tokens: Tensor,
    batch: Batch,
    num_masks: int,
    until_miss: bool,
) -> Terms:
    """CE(masks) + CE(clean); ``tokens``: sorted ids that occur in the training texts."""
    model = weights.backbone(dtype)
    clean = read_clean(model, batch.ids)
    x = read_masks(model, clean, batch, weights.embedding(num_masks), None)
    terms = masked_terms(model, Vocabulary(model, tokens), x, batch, num_masks, until_miss)
    logits, targets = clean_logits(model, batch, clean.hidden)
    return Terms(terms.loss + F.cross_entropy(logits, targets), terms.masks, terms.first)


def clean_logits(model: Backbone, batch: Batch, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [N, V] of the clean stream wherever it has a token of the response to predict, and
    those tokens [N]. hidden: [rows, T, H]."""
    slot = torch.arange(batch.ids.shape[1] - 1)
    start = batch.start[:, None] - 1
    chosen = (slot >= start) & (slot < batch.length[:, None] - 1)
    logits = model.head(model.normed(hidden[:, :-1][chosen]))
    return logits.float(), batch.ids[:, 1:][chosen]


@torch.no_grad()
def agreement(model: Backbone, batches: list[Batch]) -> float:
    """Share of the held-out tokens, which are the base's own greedy choices, that plain decoding
    with ``model`` would choose in the same place."""
    right = total = 0
    for batch in batches:
        logits, targets = clean_logits(model, batch, read_clean(model, batch.ids).hidden)
        right += int((logits.argmax(-1) == targets).sum())
        total += len(targets)
    return right / max(1, total)
