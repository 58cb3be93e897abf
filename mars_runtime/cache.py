"""KV caches: memory for the keys and values of several rows, with one cursor per row.

The module handles memory and numbers, without a model or tokens. Going back only moves a cursor and
copies nothing. Rows are copied only when they change places: the last row moves into a freed place,
and two rows are swapped when one is skipped in a forward.
"""

from __future__ import annotations

import contextlib
import copy
import math
import mmap
from typing import Any, TypeVar

import torch
from torch import Tensor

from mars_runtime.settings import MAX_FED

BLOCK = 32
"""Slots of a block, the unit of the prefix cache; the same as in ``attention.h``."""
PAGE = 1 << 21
Shape = tuple[int, int, int, int, int]
"""Layers, rows, capacity in tokens, key heads (and as many value heads), head dimension."""
C = TypeVar("C", bound="KVCache")


class KVCache:
    """Keys and values of every layer in one tensor. Slot s of a row holds its position s.

    store: [layers, rows, units, ...], with ``slots_per_unit`` consecutive slots per unit. cursors:
    number of final leading slots of each row. Slots behind the cursor are scratch memory that the
    next forward overwrites. captured: the forwards that a model has captured on this memory
    (``model/captured.py``).
    """

    slots_per_unit = 1

    def __init__(self, shape: Shape, store: Tensor) -> None:
        self.shape = shape
        self.rows, self.capacity, self.num_kv_heads = shape[1:4]
        self.cursors = [0] * self.rows
        self.store = store
        self.captured: Any = None

    @property
    def num_bytes(self) -> int:
        """Memory of the keys and values, in bytes."""
        return self.store.numel() * self.store.element_size()

    @staticmethod
    def bytes_needed(shape: Shape, dtype: torch.dtype) -> int:
        """Return the memory of keys and values of this shape, in bytes."""
        return 2 * math.prod(shape) * dtype.itemsize

    def whole(self: C) -> C:
        """Return a cache of all rows on the same memory, with cursors at 0."""
        fresh = copy.copy(self)
        fresh.cursors = [0] * self.rows
        return fresh

    def uncaptured(self: C) -> C:
        """Return the same cache without captured forwards."""
        plain = copy.copy(self)
        plain.captured = None
        return plain

    def row(self: C, row: int) -> C:
        """Return a cache of one row on the same memory, with its own cursor, to prefill the row."""
        alone = self.uncaptured()
        alone.rows, alone.cursors = 1, [self.cursors[row]]
        alone.store = self.store[:, row : row + 1]
        return alone

    def clear(self, row: int, num_slots: int | None = None) -> None:
        """Reset a row: its cursor and the contents left by an earlier row, which may include NaN.

        num_slots: number of slots that the earlier row may have written; None for all.
        """
        self.cursors[row] = 0
        end = None if num_slots is None else self._num_units(num_slots)
        self.store[:, row, :end].zero_()

    def move(self, source: int, target: int, num_slots: int | None = None) -> None:
        """Move row ``source`` to the place of row ``target``, which has left.

        num_slots: number of slots that ``target`` may have written; None for all.
        """
        cursor = self.cursors[source]
        self.clear(target, num_slots)
        used = self._num_units(cursor)
        self.store[:, target, :used] = self.store[:, source, :used]
        self.cursors[target] = cursor

    def swap(self, one: int, other: int) -> None:
        """Swap two rows, with every slot that they may have written."""
        cursors = self.cursors
        wrote = min(max(cursors[one], cursors[other]) + MAX_FED, self.capacity)
        used = self._num_units(wrote)
        copy = self.store[:, one, :used].clone()
        self.store[:, one, :used] = self.store[:, other, :used]
        self.store[:, other, :used] = copy
        cursors[one], cursors[other] = cursors[other], cursors[one]

    def _num_units(self, num_slots: int) -> int:
        return -(-num_slots // self.slots_per_unit)


class BlockKVCache(KVCache):
    """KV cache in the layout of PyTorch's attention.

    store: [layers, rows, capacity, 2 * num_kv_heads, head_dim]; the first half of the heads holds
        keys (rotated), the second half values.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        assert min(shape) >= 1, f"a cache needs a positive size, not {shape}"
        *outer, num_kv_heads, head_dim = shape
        # Zeros, not empty: a masked slot is multiplied by zero, and zero times NaN is NaN.
        size = (*outer, 2 * num_kv_heads, head_dim)
        super().__init__(shape, torch.zeros(size, dtype=dtype, device=device))

    def block(self, row: int, index: int) -> Tensor:
        """Return a copy of block number ``index`` of a row: BLOCK slots, all final."""
        return self.store[:, row, index * BLOCK : (index + 1) * BLOCK].clone()

    def put(self, row: int, index: int, block: Tensor) -> None:
        """Write ``block``, a copy from any row, as block number ``index`` of this row."""
        self.store[:, row, index * BLOCK : (index + 1) * BLOCK] = block


class PackedKVCache(KVCache):
    """KV cache in the layout of the native forward: fp16, in blocks of slots.

    store: fp16 [layers, rows, blocks, num_kv_heads, 2 * head_dim * 32]. Per block and head: the
        keys by dimension, then by slot; then the values by slot, then by dimension.
    """

    slots_per_unit = BLOCK

    def __init__(self, shape: Shape) -> None:
        assert min(shape) >= 1, f"a cache needs a positive size, not {shape}"
        layers, rows, capacity, num_kv_heads, head_dim = shape
        size = (layers, rows, -(-capacity // BLOCK), num_kv_heads, 2 * head_dim * BLOCK)
        memory = huge_memory(2 * math.prod(size)).view(torch.float16)
        super().__init__(shape, memory[: math.prod(size)].view(size))

    def block(self, row: int, index: int) -> Tensor:
        """Return a copy of block number ``index`` of a row: all of its slots must be final."""
        return self.store[:, row, index].clone()

    def put(self, row: int, index: int, block: Tensor) -> None:
        """Write ``block``, a copy from any row, as block number ``index`` of this row."""
        self.store[:, row, index] = block


def huge_memory(num_bytes: int) -> Tensor:
    """Return uint8 zeros, in huge pages where the system provides them.

    A forward reads its memory sequentially, and address translation of small pages would slow it
    down.
    """
    size = (num_bytes // PAGE + 1) * PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Private: the default is shared memory, for which systems rarely provide huge pages.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    else:
        memory = mmap.mmap(-1, size)
    return torch.frombuffer(memory, dtype=torch.uint8)
