"""Room for the keys and values of several rows, with one cursor a row.

Knows no model and no tokens: it is memory and numbers. Going back is moving a number, never a copy;
copies are made only where rows change places: the last one moves into the place of one that left,
and two are swapped when one is to sit out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mars_runtime.settings import MAX_FED


class BlockKVCache:
    """Keys and values of every layer in one tensor.

    store: [layers, rows, capacity, 2 * num_kv_heads, head_dim]; the first half of the heads holds
        keys (rotated), the second half values. Slot s of a row belongs to position s of that row.
    cursors: for each row, how many leading slots are final. What lies behind a cursor is scratch
        and the next forward overwrites it.
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int, int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """``shape`` is (layers, rows, capacity, num_kv_heads, head_dim)."""
        layers, rows, capacity, num_kv_heads, head_dim = shape
        assert min(shape) >= 1, f"a cache needs a positive size, not {shape}"
        self.rows = rows
        self.capacity = capacity
        self.num_kv_heads = num_kv_heads
        self.cursors = [0] * rows
        # Zeros, not empty: a masked slot is multiplied by zero, and zero times NaN is NaN.
        size = (layers, rows, capacity, 2 * num_kv_heads, head_dim)
        self.store = torch.zeros(size, dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        """Memory of the keys and values, in bytes."""
        return self.store.numel() * self.store.element_size()

    @staticmethod
    def bytes_needed(shape: tuple[int, int, int, int, int], dtype: torch.dtype) -> int:
        """Memory a cache of this shape would take, in bytes, before it is made."""
        layers, rows, capacity, num_kv_heads, head_dim = shape
        return 2 * layers * rows * capacity * num_kv_heads * head_dim * dtype.itemsize

    def keys(self, layer: int) -> Tensor:
        """[rows, num_kv_heads, capacity, head_dim], a view."""
        return self.store[layer, :, :, : self.num_kv_heads].transpose(1, 2)

    def values(self, layer: int) -> Tensor:
        """[rows, num_kv_heads, capacity, head_dim], a view."""
        return self.store[layer, :, :, self.num_kv_heads :].transpose(1, 2)

    def row(self, row: int) -> BlockKVCache:
        """One row alone, on the same memory, its cursor a copy: to prefill it."""
        alone = object.__new__(BlockKVCache)
        alone.rows = 1
        alone.capacity = self.capacity
        alone.num_kv_heads = self.num_kv_heads
        alone.cursors = [self.cursors[row]]
        alone.store = self.store[:, row : row + 1]
        return alone

    def clear(self, row: int, num_slots: int | None = None) -> None:
        """Make the row new. What an earlier tenant left, NaN perhaps, must not reach the next;
        ``num_slots``: it wrote no further than that."""
        self.cursors[row] = 0
        self.store[:, row, :num_slots].zero_()

    def move(self, source: int, target: int, num_slots: int | None = None) -> None:
        """Put row ``source`` in the place of row ``target``, which left and wrote no further than
        ``num_slots``."""
        cursor = self.cursors[source]
        self.clear(target, num_slots)
        self.store[:, target, :cursor] = self.store[:, source, :cursor]
        self.cursors[target] = cursor

    def swap(self, one: int, other: int) -> None:
        """Let two rows change places, with all that they ever wrote."""
        cursors = self.cursors
        used = min(max(cursors[one], cursors[other]) + MAX_FED, self.capacity)
        kept = self.store[:, one, :used].clone()
        self.store[:, one, :used] = self.store[:, other, :used]
        self.store[:, other, :used] = kept
        cursors[one], cursors[other] = cursors[other], cursors[one]
