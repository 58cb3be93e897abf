"""Rotary positions and attention over the KV cache, with few operations per layer.

Query and key rows are reordered (``rotary_order``), so a rotation is one multiplication of complex
numbers. Query heads that share a key-value head are read as additional queries of one head
(``packed_order``), so keys and values are never repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.cache import BlockKVCache
from mars_runtime.model.config import ModelConfig, RopeScaling
from mars_runtime.model.forward import Branches
from mars_runtime.model.transfers import to_device

MAX_CACHED_WIDTH = 64  # tokens per row of a cached causal bias; prefill usually feeds more


@dataclass(slots=True)
class Window:
    """turn_queries, turn_stored: rotations of queries, complex [R*Q, 1, D/2], and of keys and
    values, [R*Q, 2*Hkv, D/2]. keys, values: per layer, the slots to read, [R, Hkv, T, D]. targets:
    per layer, the slots to write, [R, Q, 2*Hkv, D], or all slots, [R*capacity, 2*Hkv, D], to be
    indexed with ``slot_ids``.
    """

    num_rows: int
    num_queries: int
    turn_queries: Tensor
    turn_stored: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]
    bias: Tensor | None = None
    slot_ids: Tensor | None = None


class Positions:
    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self._config = config
        self._dtype = dtype
        self._device = device
        # Rotations by position: [P, 1, D/2] for queries, [P, 2*Hkv, D/2] for keys and values.
        self._turns = torch.empty(0, 1, config.head_dim // 2, dtype=torch.complex64, device=device)
        self._stored_turns = self._turns
        # Smaller tables that were replaced. Captured forward passes still read them.
        self._outgrown: list[Tensor] = []
        self._biases: dict[int, Tensor] = {}

    def open(
        self, cache: BlockKVCache, num_rows: int, num_queries: int, branches: Branches | None = None
    ) -> Window:
        """Raises ValueError if the tokens do not fit."""
        cursors = cache.cursors[:num_rows]
        start, end = min(cursors), max(cursors) + num_queries
        if end > cache.capacity:
            raise ValueError(
                f"the forward pass needs {end} slots, but the cache has {cache.capacity}"
            )
        if branches is not None or end - num_queries != start:
            device_cursors = to_device(cursors, self._device)
            branches = None if branches is None else branches.to(self._device)
            return self.open_at(cache, device_cursors, num_queries, end, branches)
        self.extend(cache.capacity)
        turns, stored_turns = self._turns[start:end], self._stored_turns[start:end]
        if num_rows > 1:
            turns, stored_turns = turns.repeat(num_rows, 1, 1), stored_turns.repeat(num_rows, 1, 1)
        keys, values = _readable(cache, num_rows, end)
        return Window(
            num_rows=num_rows,
            num_queries=num_queries,
            turn_queries=turns,
            turn_stored=stored_turns,
            keys=keys,
            values=values,
            targets=cache.store[:, :num_rows, start:end].unbind(0),
            bias=self._causal(num_queries, end) if num_queries > 1 else None,
        )

    def open_at(
        self,
        cache: BlockKVCache,
        cursors: Tensor,
        num_queries: int,
        context: int,
        branches: Branches | None = None,
    ) -> Window:
        """cursors: int64 [R], on the device; the host does not wait for it. context: number of
        slots that attention reads; every row whose result is used must have cursor + Q <= context.
        """
        self.extend(cache.capacity)
        num_rows = len(cursors)
        slots = cursors.unsqueeze(1) + torch.arange(num_queries, device=self._device)
        starts = torch.arange(num_rows, device=self._device).unsqueeze(1) * cache.capacity
        positions = slots if branches is None else cursors.unsqueeze(1) + branches.positions
        at = positions.flatten()
        keys, values = _readable(cache, num_rows, context)
        return Window(
            num_rows=num_rows,
            num_queries=num_queries,
            turn_queries=self._turns[at],
            turn_stored=self._stored_turns[at],
            keys=keys,
            values=values,
            targets=cache.store[:, :num_rows].flatten(1, 2).unbind(0),
            bias=self._bias(slots, cursors, context, branches),
            slot_ids=(slots + starts).flatten(),
        )

    def _bias(self, slots: Tensor, cursors: Tensor, end: int, branches: Branches | None) -> Tensor:
        """Return [R, 1, Q * group, T]."""
        slot = torch.arange(end, device=self._device)
        ends = slots
        if branches is not None and branches.ends is not None:
            ends = cursors.unsqueeze(1) + branches.ends
        is_hidden = slot > ends.unsqueeze(2)
        if branches is not None:
            first = cursors.view(-1, 1, 1)
            is_behind_root = slot >= first + branches.roots.unsqueeze(2)
            is_hidden |= is_behind_root & (slot < first + branches.starts.unsqueeze(2))
        bias = torch.zeros(is_hidden.shape, dtype=self._dtype, device=self._device)
        bias.masked_fill_(is_hidden, -math.inf)
        return bias.repeat_interleave(self._config.group, dim=1).unsqueeze(1)

    def _causal(self, num_queries: int, end: int) -> Tensor:
        """Return [Q * group, end]: the last columns of a longer table, which is cached for each
        width.
        """
        is_cached = num_queries <= MAX_CACHED_WIDTH
        bias = self._biases.get(num_queries)
        if bias is None or bias.shape[1] < end:
            length = max(MAX_CACHED_WIDTH, 2 * end) if is_cached else end
            size = (num_queries, num_queries)
            hidden = torch.full(size, -math.inf, dtype=self._dtype, device=self._device).triu(1)
            bias = F.pad(hidden, (length - num_queries, 0))
            bias = bias.repeat_interleave(self._config.group, dim=0)
            if is_cached:
                self._biases[num_queries] = bias
        bias = bias[:, -end:]
        # Attention on CUDA needs an aligned bias, because it reads several numbers at a time.
        return bias if self._device.type == "cpu" else bias.contiguous()

    def extend(self, length: int) -> None:
        if length > len(self._turns):
            if self._device.type == "cuda":
                length = max(length, 2 * len(self._turns))
                self._outgrown += [self._turns, self._stored_turns]
            angles = torch.outer(
                torch.arange(length, dtype=torch.float32), frequencies(self._config)
            )
            turns = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
            self._turns = turns.to(self._device)
            # Values are not rotated: multiplying them by 1 leaves every bit unchanged.
            heads = self._config.num_kv_heads
            both = torch.cat(
                [turns.expand(-1, heads, -1), torch.ones_like(turns).expand(-1, heads, -1)], 1
            )
            self._stored_turns = both.to(self._device)


def _readable(
    cache: BlockKVCache, num_rows: int, end: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    slots = cache.store[:, :num_rows, :end].transpose(2, 3)
    return slots[:, :, : cache.num_kv_heads].unbind(0), slots[:, :, cache.num_kv_heads :].unbind(0)


def attend(projected: Tensor, layer: int, window: Window, config: ModelConfig) -> Tensor:
    """Write keys and values into the cache. projected: [R*Q, (Hq + 2*Hkv) * D], queries and keys in
    ``rotary_order``. Returns [R*Q, Hq * D], with the heads in ``packed_order``.
    """
    rows, queries, heads, dim = (
        window.num_rows,
        window.num_queries,
        config.num_heads,
        config.head_dim,
    )
    wide = projected if projected.dtype == torch.float32 else projected.float()
    pairs = torch.view_as_complex(wide.view(rows * queries, -1, dim // 2, 2))
    query = torch.view_as_real(pairs[:, :heads] * window.turn_queries)
    stored = torch.view_as_real(pairs[:, heads:] * window.turn_stored)
    if window.slot_ids is None:
        window.targets[layer].copy_(stored.view(rows, queries, -1, dim))
    else:
        stored = stored.view(rows * queries, -1, dim).to(projected.dtype)
        window.targets[layer].index_copy_(0, window.slot_ids, stored)
    query = query.view(rows, queries * config.group, config.num_kv_heads, dim).transpose(1, 2)
    if wide is not projected:
        query = query.to(projected.dtype)
    mixed = F.scaled_dot_product_attention(
        query, window.keys[layer], window.values[layer], attn_mask=window.bias
    )
    return mixed.transpose(1, 2).reshape(rows * queries, heads * dim)


def rotary_order(head_dim: int) -> Tensor:
    """Features i and i + D/2, which are rotated together, become adjacent."""
    return torch.arange(head_dim).view(2, head_dim // 2).t().flatten()


def packed_order(num_heads: int, num_kv_heads: int) -> Tensor:
    """Query heads by index in the group, then by key-value head."""
    return torch.arange(num_heads).view(num_kv_heads, -1).t().flatten()


def frequencies(config: ModelConfig) -> Tensor:
    """Return radians per position, fp32 [D/2], as in transformers."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    plain = 1.0 / (config.rope_theta**steps)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if isinstance(scaling, RopeScaling):
        return _scaled(plain, scaling)
    return plain / torch.tensor(scaling)


def _scaled(plain: Tensor, scaling: RopeScaling) -> Tensor:
    turns = scaling.original_max_positions * plain / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return plain * (keep + (1 - keep) / scaling.factor)
