"""Batches of adapter training, and how the base reads them: texts with random anchors, positions
after which a group of masks follows. Batches depend only on the seed, the step and the texts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.commands import UsageError
from mars_runtime.lab.training.adapter.base import FrozenBase
from mars_runtime.lab.training.distill import store

WIDTHS = (96, 128, 192, 256, 320, 448, 640)
"""The allowed widths of batches. Arbitrary widths would fragment the memory."""
MIN_RESPONSE = 4
ATTENTION = "mars_groups"


@dataclass(frozen=True, slots=True)
class Text:
    kind: str
    ids: tuple[int, ...]
    start: int

    @property
    def anchors(self) -> range:
        """The positions p after which a group has a target. Mask j is at position p + j and
        predicts the token at p + j + 1."""
        return range(self.start - 1, len(self.ids) - 2)

    @property
    def width(self) -> int:
        return next(width for width in WIDTHS if width >= len(self.ids))


def read_texts(folder: Path) -> tuple[list[Text], list[Text]]:
    """Return training and held-out texts, cut to the largest width. Raises UsageError."""
    parts: tuple[list[Text], list[Text]] = ([], [])
    for record in store.read(folder):
        ids = (*record.prompt, *record.response)[: WIDTHS[-1]]
        if len(ids) - len(record.prompt) >= MIN_RESPONSE:
            parts[record.held_out].append(Text(record.kind, ids, len(record.prompt)))
    if not parts[0]:
        raise UsageError(f"--data {folder} has no answers to train on. Run distill first.")
    if not parts[1]:
        raise UsageError(
            f"--data {folder} has no held-out answers to measure on. Run distill with more "
            "--prompts."
        )
    return parts


@dataclass(frozen=True, slots=True)
class AnchoredBatch:
    """ids: [N, T], padded on the right. anchors, is_real (False: padding): [N, A]. length: [N]."""

    ids: Tensor
    anchors: Tensor
    is_real: Tensor
    length: Tensor

    @classmethod
    def of(cls, texts: Sequence[Text], num_anchors: int, rng: random.Random) -> AnchoredBatch:
        width = max(text.width for text in texts)
        ids, anchors, is_real = [], [], []
        for text in texts:
            drawn = list(text.anchors)
            if len(drawn) > num_anchors:
                drawn = sorted(rng.sample(drawn, num_anchors))
            missing = num_anchors - len(drawn)
            ids.append([*text.ids, *[0] * (width - len(text.ids))])
            anchors.append([*drawn, *[0] * missing])
            is_real.append([*[True] * len(drawn), *[False] * missing])
        length = torch.tensor([len(text.ids) for text in texts])
        return cls(torch.tensor(ids), torch.tensor(anchors), torch.tensor(is_real), length)

    def targets(self, num_masks: int) -> tuple[Tensor, Tensor]:
        """Return the targets and whether they exist, both [N, A, M]."""
        position, tokens = self._behind_anchors(2, num_masks)
        return tokens, (position < self.length[:, None, None]) & self.is_real[..., None]

    def previous_tokens(self, num_masks: int) -> Tensor:
        """Return the tokens before the targets, [N, A, M]."""
        return self._behind_anchors(1, num_masks)[1]

    def _behind_anchors(self, first: int, num_masks: int) -> tuple[Tensor, Tensor]:
        position = self.anchors[..., None] + torch.arange(first, first + num_masks)
        clipped = position.clamp(max=self.ids.shape[1] - 1).flatten(1)
        return position, self.ids.gather(1, clipped).view(position.shape)


def epoch(texts: Sequence[Text], batch_tokens: int, seed: int, number: int) -> list[list[Text]]:
    """A batch has texts of one width."""
    rng = random.Random(f"{seed}/{number}")
    by_width: dict[int, list[Text]] = {width: [] for width in WIDTHS}
    for text in rng.sample(list(texts), len(texts)):
        by_width[text.width].append(text)
    batches = [
        rows[i : i + max(1, batch_tokens // width)]
        for width, rows in by_width.items()
        for i in range(0, len(rows), max(1, batch_tokens // width))
    ]
    rng.shuffle(batches)
    return batches


@dataclass(frozen=True, slots=True)
class MaskGroups:
    """is_later: which clean tokens are after the anchor, [N, A, T]."""

    is_later: Tensor
    size: int


Clean = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [N, kv heads, T, d]."""


def read_clean(base: FrozenBase, ids: Tensor) -> Clean:
    clean: Clean = []
    _use_attention(base)
    with torch.no_grad():
        positions = torch.arange(ids.shape[1])[None]
        base.hidden(base.embedding[ids], positions, clean=clean, groups=None)
    return clean


def read_masks(base: FrozenBase, clean: Clean, batch: AnchoredBatch, embedding: Tensor) -> Tensor:
    """Return the normed hidden states [N, A, M, H] of a group of M masks after each anchor. A mask
    attends to the clean tokens up to the anchor and to its group up to itself."""
    rows, num_groups = batch.anchors.shape
    size = len(embedding)
    _use_attention(base)
    positions = (batch.anchors[..., None] + torch.arange(1, size + 1)).flatten(1)
    is_later = torch.arange(batch.ids.shape[1]) > batch.anchors[..., None]
    x = embedding.repeat(rows, num_groups, 1)
    h = base.hidden(x, positions, clean=clean, groups=MaskGroups(is_later, size))
    return h.view(rows, num_groups, size, -1)


def _use_attention(base: FrozenBase) -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)
    base.model.set_attn_implementation(ATTENTION)


def _attention(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _mask: None,
    *,
    scaling: float,
    clean: Clean,
    groups: MaskGroups | None,
    **_: Any,
) -> tuple[Tensor, None]:
    k, v = k.to(v.dtype), v.contiguous()
    q = q.to(v.dtype)
    if groups is None:
        clean.append((k.contiguous(), v))
        out = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scaling, enable_gqa=True
        )
        return out.transpose(1, 2).contiguous(), None
    keys, values = clean[module.layer_idx]
    rows, kv_heads, dim = k.shape[0], k.shape[1], k.shape[3]
    # Dimensions: N, kv heads, query heads of a kv head, A, M, d. Products of a group are
    # elementwise, which is faster for many small matrices.
    q = (q * scaling).reshape(rows, kv_heads, -1, groups.is_later.shape[1], groups.size, dim)
    k, v = (t.reshape(rows, kv_heads, 1, -1, groups.size, dim) for t in (k, v))
    scores = (q.flatten(2, 4) @ keys.transpose(-1, -2)).view(*q.shape[:5], -1).float()
    scores = scores.masked_fill(groups.is_later[:, None, None, :, None], -torch.inf)
    own = (q[..., :, None, :] * k[..., None, :, :]).sum(-1).float()
    own = own.masked_fill(torch.ones_like(own[0, 0, 0, 0], dtype=torch.bool).triu(1), -torch.inf)
    total = torch.logaddexp(scores.logsumexp(-1, True), own.logsumexp(-1, True))
    to_text, to_own = ((s - total).exp().to(v.dtype) for s in (scores, own))
    out = (to_text.flatten(2, 4) @ values).view(q.shape)
    out = out + (to_own[..., None] * v[..., None, :, :]).sum(-2)
    return out.flatten(3, 4).flatten(1, 2).transpose(1, 2).contiguous(), None
