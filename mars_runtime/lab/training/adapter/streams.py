"""Build the batches of adapter training, and run the base model on them.

A batch has texts (prompts with answers) and random anchors: positions after which a group of masks
follows. Batches depend only on the seed, the step and the texts, so a resumed run trains on the
same batches as an uninterrupted run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.commands import UsageError
from mars_runtime.lab.training.backbone import Backbone, Update
from mars_runtime.lab.training.distill import store

WIDTHS = (96, 128, 192, 256, 320, 448, 640)
"""The allowed widths of batches. Arbitrary widths would fragment the memory."""
MIN_RESPONSE = 4


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and its response. start: index of the response in ``ids``."""

    kind: str
    ids: tuple[int, ...]
    start: int

    @property
    def anchors(self) -> range:
        """All positions p after which a group of masks has a target. Mask j is at position p + j
        and predicts the token at p + j + 1.
        """
        return range(self.start - 1, len(self.ids) - 2)


def read_texts(folder: Path) -> tuple[list[Text], list[Text]]:
    """Return (training texts, held-out texts), cut to the largest of WIDTHS. Raises UsageError if
    one is empty.
    """
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
    """A batch of texts with anchors.

    - ids: [N, T], padded on the right.
    - anchors: [N, A], positions after which a group of masks follows.
    - is_real: [N, A], False for anchors that are padding.
    - start, length: [N], positions at which the response begins and ends.
    """

    ids: Tensor
    anchors: Tensor
    is_real: Tensor
    start: Tensor
    length: Tensor

    @classmethod
    def of(cls, texts: Sequence[Text], num_anchors: int, rng: random.Random) -> AnchoredBatch:
        """Build a batch with ``num_anchors`` random anchors per text, or all if there are fewer."""
        width = next(w for w in WIDTHS if w >= max(len(t.ids) for t in texts))
        ids, anchors, is_real = [], [], []
        for text in texts:
            drawn = list(text.anchors)
            if len(drawn) > num_anchors:
                drawn = sorted(rng.sample(drawn, num_anchors))
            missing = num_anchors - len(drawn)
            ids.append([*text.ids, *[0] * (width - len(text.ids))])
            anchors.append([*drawn, *[0] * missing])
            is_real.append([*[True] * len(drawn), *[False] * missing])
        return cls(
            ids=torch.tensor(ids),
            anchors=torch.tensor(anchors),
            is_real=torch.tensor(is_real),
            start=torch.tensor([text.start for text in texts]),
            length=torch.tensor([len(text.ids) for text in texts]),
        )

    def targets(self, num_masks: int) -> tuple[Tensor, Tensor]:
        """Return the target token of each mask and whether it exists, both [N, A, M]."""
        position, tokens = self._behind_anchors(2, num_masks)
        return tokens, (position < self.length[:, None, None]) & self.is_real[..., None]

    def previous_tokens(self, num_masks: int) -> Tensor:
        """Return the token before the target of each mask, [N, A, M]."""
        return self._behind_anchors(1, num_masks)[1]

    def _behind_anchors(self, first: int, num_masks: int) -> tuple[Tensor, Tensor]:
        """Return the positions from p + ``first`` on for each anchor p, and their tokens, both [N,
        A, M].
        """
        position = self.anchors[..., None] + torch.arange(first, first + num_masks)
        clipped = position.clamp(max=self.ids.shape[1] - 1).flatten(1)
        return position, self.ids.gather(1, clipped).view(position.shape)


def epoch(texts: Sequence[Text], batch_tokens: int, seed: int, number: int) -> list[list[Text]]:
    """Return the batches of epoch ``number`` in random order. A batch has texts of one width."""
    rng = random.Random(f"{seed}/{number}")
    by_width: dict[int, list[Text]] = {width: [] for width in WIDTHS}
    for text in rng.sample(list(texts), len(texts)):
        by_width[next(w for w in WIDTHS if w >= len(text.ids))].append(text)
    batches = [
        rows[i : i + max(1, batch_tokens // width)]
        for width, rows in by_width.items()
        for i in range(0, len(rows), max(1, batch_tokens // width))
    ]
    rng.shuffle(batches)
    return batches


@dataclass(frozen=True, slots=True)
class Clean:
    """keys, values: [N, kv heads, T, d] for each layer. hidden: [N, T, H], residual stream."""

    keys: list[Tensor]
    values: list[Tensor]
    hidden: Tensor


def read_clean(model: Backbone, ids: Tensor) -> Clean:
    rows, width = ids.shape
    keys: list[Tensor] = []
    values: list[Tensor] = []

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t.view(rows, width, *t.shape[1:]).transpose(1, 2).contiguous() for t in (k, v))
        keys.append(k)
        values.append(v)
        q = q.reshape(rows, width, -1, q.shape[-1]).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).reshape(rows * width, -1)

    positions = torch.arange(width).repeat(rows)
    x = model.hidden(model.embed(ids.flatten()), positions, attend)
    return Clean(keys, values, x.view(rows, width, -1))


def own_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return q @ k^T for [..., M, d] by elementwise products, which is faster for many small
    matrices.
    """
    return (q[..., :, None, :] * k[..., None, :, :]).sum(-1)


def own_values(weights: Tensor, v: Tensor) -> Tensor:
    """Return weights [..., M, M] @ v [..., M, d], by elementwise products."""
    return (weights[..., None] * v[..., None, :, :]).sum(-2)


def read_masks(
    model: Backbone, clean: Clean, batch: AnchoredBatch, embedding: Tensor, update: Update | None
) -> Tensor:
    """Run a group of M masks after each anchor; return their residual stream [N, A, M, H].

    Mask j after an anchor p is at position p + j. It attends to the clean tokens up to p and to its
    group up to itself. embedding: [M, H]. update: the adapter's, or None for the base unchanged.
    """
    rows, groups = batch.anchors.shape
    masks = len(embedding)
    positions = (batch.anchors[..., None] + torch.arange(1, masks + 1)).flatten()
    later = torch.arange(batch.ids.shape[1]) > batch.anchors[..., None]
    later = later[:, None, None, :, None]  # dimensions: N, kv heads, group, A, M, T
    own_later = torch.ones(masks, masks, dtype=torch.bool).triu(1)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kv_heads, group, dim = q.shape[1:]
        q = q.view(rows, groups, masks, kv_heads, group, dim).permute(0, 3, 4, 1, 2, 5)
        k, v = (t.view(rows, groups, masks, kv_heads, dim).permute(0, 3, 1, 2, 4) for t in (k, v))
        keys, values = clean.keys[layer], clean.values[layer]
        q = q.contiguous() * dim**-0.5
        flat = q.view(rows, kv_heads, -1, dim)
        scores = (flat @ keys.transpose(-1, -2)).view(*q.shape[:5], -1)
        mask_scores = own_scores(q, k[:, :, None])
        to_text, to_masks = model.pieces.joint_softmax(scores, mask_scores, later, own_later)
        out: Tensor = (to_text.view(rows, kv_heads, -1, keys.shape[2]) @ values).view(q.shape)
        out = out + own_values(to_masks, v[:, :, None])
        return out.permute(0, 3, 4, 1, 2, 5).reshape(rows * groups * masks, -1)

    x = embedding.float().repeat(rows * groups, 1)
    x = model.hidden(x, positions, attend, update)
    return x.view(rows, groups, masks, -1)
