"""Room for keys and values as the native forward reads them: in blocks of slots, in fp16.

The same methods as ``cache.BlockKVCache``, whose words hold here too: a row has a cursor, and going
back is moving a number. Knows no model and no tokens.
"""

from __future__ import annotations

import math

import torch

from mars_runtime.model.native.pack import huge_memory
from mars_runtime.settings import MAX_FED

BLOCK = 32
"""Slots of a block; as in ``attention.h``."""


class PackedKVCache:
    """Keys and values of every layer in one tensor.

    store: fp16 [layers, rows, blocks, num_kv_heads, 2 * head_dim * 32]: of a block and head the
        keys by dimension, then by slot; then the values by slot, then by dimension.
    cursors: for each row, how many leading slots are final.
    """

    def __init__(self, shape: tuple[int, int, int, int, int]) -> None:
        """``shape`` is (layers, rows, capacity, num_kv_heads, head_dim)."""
        layers, rows, capacity, num_kv_heads, head_dim = shape
        assert min(shape) >= 1, f"a cache needs a positive size, not {shape}"
        self.rows = rows
        self.capacity = capacity
        self.cursors = [0] * rows
        size = (layers, rows, -(-capacity // BLOCK), num_kv_heads, 2 * head_dim * BLOCK)
        memory = huge_memory(2 * math.prod(size)).view(torch.float16)
        self.store = memory[: math.prod(size)].view(size)

    @property
    def num_bytes(self) -> int:
        """Memory of the keys and values, in bytes."""
        return self.store.numel() * self.store.element_size()

    def row(self, row: int) -> PackedKVCache:
        """One row alone, on the same memory, its cursor a copy: to prefill it."""
        alone = object.__new__(PackedKVCache)
        alone.rows = 1
        alone.capacity = self.capacity
        alone.cursors = [self.cursors[row]]
        alone.store = self.store[:, row : row + 1]
        return alone

    def clear(self, row: int, num_slots: int | None = None) -> None:
        """Make the row new. ``num_slots``: it wrote no further than that."""
        self.cursors[row] = 0
        end = None if num_slots is None else -(-num_slots // BLOCK)
        self.store[:, row, :end].zero_()

    def move(self, source: int, target: int, num_slots: int | None = None) -> None:
        """Put row ``source`` in the place of row ``target``, which left and wrote no further than
        ``num_slots``."""
        cursor = self.cursors[source]
        self.clear(target, num_slots)
        used = -(-cursor // BLOCK)
        self.store[:, target, :used] = self.store[:, source, :used]
        self.cursors[target] = cursor

    def block(self, row: int, index: int) -> torch.Tensor:
        """A copy of block number ``index`` of a row, all of whose slots are final."""
        return self.store[:, row, index].clone()

    def put(self, row: int, index: int, block: torch.Tensor) -> None:
        """Make ``block``, of any row, block number ``index`` of this one."""
        self.store[:, row, index] = block

    def swap(self, one: int, other: int) -> None:
        """Let two rows change places, with all that they ever wrote."""
        cursors = self.cursors
        used = -(-min(max(cursors[one], cursors[other]) + MAX_FED, self.capacity) // BLOCK)
        kept = self.store[:, one, :used].clone()
        self.store[:, one, :used] = self.store[:, other, :used]
        self.store[:, other, :used] = kept
        cursors[one], cursors[other] = cursors[other], cursors[one]
