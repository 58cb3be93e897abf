"""The two streams of adapter training: clean keys and values, computed once without gradient, and
the masks of many groups, which all read them.

Knows the backbone and which position sees which; losses and parameters are others' business.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mars_runtime.lab.training.adapter.texts import Batch
from mars_runtime.lab.training.backbone import Backbone, Update

HIDDEN = -1e9


@dataclass(frozen=True, slots=True)
class Clean:
    """keys, values: per layer [N, kv heads, T, d]; hidden: residual stream [N, T, H]."""

    keys: list[Tensor]
    values: list[Tensor]
    hidden: Tensor


def read_clean(model: Backbone, ids: Tensor) -> Clean:
    """The base's own causal forward over [N, T] ids."""
    rows, width = ids.shape
    keys: list[Tensor] = []
    values: list[Tensor] = []

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t.view(rows, width, *t.shape[1:]).transpose(1, 2).contiguous() for t in (k, v))
        keys.append(k)
        values.append(v)
        q = q.view(rows, width, *q.shape[1:]).permute(0, 2, 3, 1, 4)  # N, kv, G, T, d
        scores = (q.reshape(*k.shape[:2], -1, q.shape[-1]) @ k.transpose(-1, -2)).view(
            *q.shape[:4], width
        )
        weights = torch.softmax(scores * q.shape[-1] ** -0.5 + bias, -1)
        out = weights.view(*k.shape[:2], -1, width) @ v
        return out.view(q.shape).permute(0, 3, 1, 2, 4).reshape(rows * width, -1)

    dtype = model.embedding.dtype
    bias = torch.full((width, width), HIDDEN, dtype=dtype).triu(1)
    positions = torch.arange(width).repeat(rows)
    x = model.hidden(model.embed(ids.flatten()), positions, attend)
    return Clean(keys, values, x.view(rows, width, -1))


def read_masks(
    model: Backbone, clean: Clean, batch: Batch, embedding: Tensor, update: Update | None
) -> Tensor:
    """Residual stream [N, A, M, H] of a group of M masks after each anchor.

    embedding: [M, H]. Mask j of the group after p stands at p + j and sees the clean tokens up to
    p and the masks of its group up to itself, and nothing of other groups. Without an update masks
    pass through the weights of real tokens.
    """
    rows, groups = batch.anchors.shape
    masks = len(embedding)
    place = torch.arange(1, masks + 1)
    positions = (batch.anchors[..., None] + place).flatten()
    later = torch.arange(batch.ids.shape[1]) > batch.anchors[..., None]
    clean_bias = torch.zeros(later.shape).masked_fill_(later, HIDDEN)
    clean_bias = clean_bias[:, None, None, :, None]  # N, kv, G, A, M, T
    own_bias = torch.full((masks, masks), HIDDEN).triu(1)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kv_heads, group, dim = q.shape[1:]
        q = q.view(rows, groups, masks, kv_heads, group, dim).permute(0, 3, 4, 1, 2, 5)
        k, v = (t.view(rows, groups, masks, kv_heads, dim).permute(0, 3, 1, 2, 4) for t in (k, v))
        keys, values = clean.keys[layer], clean.values[layer]
        q = q.contiguous()
        flat = q.view(rows, kv_heads, -1, dim)
        scores = (flat @ keys.transpose(-1, -2)).view(*q.shape[:5], -1)
        own = q @ k[:, :, None].transpose(-1, -2)
        seen, mine = model.pieces.joint_softmax(scores, own, clean_bias, own_bias, dim**-0.5)
        out: Tensor = (seen.view(rows, kv_heads, -1, keys.shape[2]) @ values).view(q.shape)
        out = out + mine @ v[:, :, None]
        return out.permute(0, 3, 4, 1, 2, 5).reshape(rows * groups * masks, -1)

    x = embedding.float().repeat(rows * groups, 1)
    x = model.hidden(x, positions, attend, update)
    return x.view(rows, groups, masks, -1)
