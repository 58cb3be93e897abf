"""An adapter at work: which rows of a forward are masks, and what is added to them.

The small products of a real token are multiplied by zero before they are added, so its row stays
what the base computed, to the last bit. Knows weights in the orders of ``attention.py``; knows no
cache and no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_runtime.branches import Branches
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.attention import packed_order, rotary_order
from mars_runtime.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class MaskRows:
    """The masks among the N tokens of one forward, and what the adapter gives to them.

    gate: [N, 1], 1 for a mask, else 0. embedding: [N, hidden], that of each mask by its place.
    updates: for each layer (a [in, rank], b [rank, out]) by part.
    """

    gate: Tensor
    embedding: Tensor
    updates: Sequence[Mapping[str, tuple[Tensor, Tensor]]]

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings [N, hidden] with those of the masks in their places."""
        return torch.where(self.gate.bool(), self.embedding, x)

    def add(self, y: Tensor, x: Tensor, layer: int, part: str) -> None:
        """Add to ``y`` [N, out], the product of ``x`` [N, in], what the masks get."""
        if part in self.updates[layer]:
            a, b = self.updates[layer][part]
            y.addmm_((x @ a).mul_(self.gate), b)


class MaskAdapter:
    """An adapter prepared for one model: on its device, in its dtype and in its order of rows."""

    def __init__(
        self,
        adapter: Adapter,
        mask_id: int,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._mask_id = mask_id
        self._dtype = dtype
        self._is_cpu = device.type == "cpu"
        self._embedding = adapter.mask_embedding.to(device, dtype)
        self._updates = [
            {
                part: _prepared(
                    part, update.a.to(device, dtype), update.b.to(device, dtype), config
                )
                for part, update in layer.items()
            }
            for layer in adapter.layers
        ]

    def find(self, tokens: Tensor, branches: Branches | None) -> MaskRows | None:
        """The masks among tokens [R, Q]; None where there are none and a CPU can see it."""
        is_mask = tokens == self._mask_id
        if self._is_cpu and not is_mask.any():
            return None
        if branches is not None:
            places = branches.positions - branches.roots
        else:
            slots = torch.arange(tokens.shape[1], device=tokens.device)
            places = slots - torch.where(is_mask, -1, slots).cummax(1).values - 1
        places = places.clamp(0, len(self._embedding) - 1).flatten()
        gate = is_mask.to(self._dtype).view(-1, 1)
        return MaskRows(gate, self._embedding[places], self._updates)


def _prepared(part: str, a: Tensor, b: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """a [in, rank] and b [rank, out], ordered as the matrices that they stand beside."""
    dim = config.head_dim
    heads = packed_order(config.num_heads, config.num_kv_heads)
    if part == "qkv":
        turn, kept = rotary_order(dim), config.num_kv_heads
        query, key, value = b.view(-1, dim, b.shape[1]).tensor_split(
            (config.num_heads, config.num_heads + kept)
        )
        b = torch.cat([query[heads][:, turn], key[:, turn], value]).flatten(0, 1)
    elif part == "o":
        a = a.view(len(a), config.num_heads, dim)[:, heads].flatten(1)
    return a.t().contiguous(), b.t().contiguous()
