"""KV caches: memory for the keys and values of several rows, with one cursor per row.

Rewinding a row moves its cursor and copies nothing. Rows are copied only when their order changes.
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
"""Tokens per block of the prefix cache; it must equal the block size in ``attention.h``."""
PAGE = 1 << 21
Shape = tuple[int, int, int, int, int]
"""Layers, rows, capacity in tokens, number of key-value heads, head dimension."""
C = TypeVar("C", bound="KVCache")


class KVCache:
    """Keys and values of every layer in one tensor. Slot s of a row stores position s.

    store: [layers, rows, units, ...], with ``slots_per_unit`` consecutive slots per unit.
    cursors: for each row, the number of leading slots that are final; the next forward pass
        overwrites the slots after them.
    captured: CUDA graphs of forward passes that use this memory.
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
        return self.store.numel() * self.store.element_size()

    @staticmethod
    def bytes_needed(shape: Shape, dtype: torch.dtype) -> int:
        return 2 * math.prod(shape) * dtype.itemsize

    def whole(self: C) -> C:
        """Return a cache of all rows on the same memory, with cursors at 0."""
        fresh = copy.copy(self)
        fresh.cursors = [0] * self.rows
        return fresh

    def uncaptured(self: C) -> C:
        """Return a cache on the same memory, but without CUDA graphs (``captured``)."""
        plain = copy.copy(self)
        plain.captured = None
        return plain

    def row(self: C, row: int) -> C:
        """Return a cache of one row on the same memory, with its own cursor."""
        single = self.uncaptured()
        single.rows, single.cursors = 1, [self.cursors[row]]
        single.store = self.store[:, row : row + 1]
        return single

    def clear(self, row: int, num_slots: int | None = None) -> None:
        """Reset the cursor of a row and erase the ``num_slots`` that an earlier row may have
        written (None: all), possibly NaN.
        """
        self.cursors[row] = 0
        end = None if num_slots is None else self._num_units(num_slots)
        self.store[:, row, :end].zero_()

    def move(self, source: int, target: int, num_slots: int | None = None) -> None:
        """Move row ``source`` to index ``target``, of which a removed row may have written
        ``num_slots``.
        """
        cursor = self.cursors[source]
        self.clear(target, num_slots)
        used = self._num_units(cursor)
        self.store[:, target, :used] = self.store[:, source, :used]
        self.cursors[target] = cursor

    def swap(self, first: int, second: int) -> None:
        cursors = self.cursors
        num_written = min(max(cursors[first], cursors[second]) + MAX_FED, self.capacity)
        used = self._num_units(num_written)
        copy = self.store[:, first, :used].clone()
        self.store[:, first, :used] = self.store[:, second, :used]
        self.store[:, second, :used] = copy
        cursors[first], cursors[second] = cursors[second], cursors[first]

    def _num_units(self, num_slots: int) -> int:
        return -(-num_slots // self.slots_per_unit)


class BlockKVCache(KVCache):
    """KV cache in the layout of PyTorch's attention.

    ``store`` is [layers, rows, capacity, 2 * num_kv_heads, head_dim]. The first half of the heads
    stores keys (rotated), the second half values.
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
        # Zeros, because attention multiplies masked slots by 0 and memory may contain NaN.
        size = (*outer, 2 * num_kv_heads, head_dim)
        super().__init__(shape, torch.zeros(size, dtype=dtype, device=device))

    def block(self, row: int, index: int) -> Tensor:
        """Return a copy of block number ``index`` of a row; all of its slots must be final."""
        return self.store[:, row, index * BLOCK : (index + 1) * BLOCK].clone()

    def put(self, row: int, index: int, block: Tensor) -> None:
        self.store[:, row, index * BLOCK : (index + 1) * BLOCK] = block


class PackedKVCache(KVCache):
    """KV cache in the layout of the native forward pass: fp16, in blocks of slots.

    ``store`` is fp16 [layers, rows, blocks, num_kv_heads, 2 * head_dim * 32]. For each block and
    head it stores the keys (dimension first, then slot) and then the values (slot first, then
    dimension).
    """

    slots_per_unit = BLOCK

    def __init__(self, shape: Shape) -> None:
        assert min(shape) >= 1, f"a cache needs a positive size, not {shape}"
        layers, rows, capacity, num_kv_heads, head_dim = shape
        size = (layers, rows, -(-capacity // BLOCK), num_kv_heads, 2 * head_dim * BLOCK)
        memory = huge_memory(2 * math.prod(size)).view(torch.float16)
        super().__init__(shape, memory[: math.prod(size)].view(size))

    def block(self, row: int, index: int) -> Tensor:
        return self.store[:, row, index].clone()

    def put(self, row: int, index: int, block: Tensor) -> None:
        self.store[:, row, index] = block


def huge_memory(num_bytes: int) -> Tensor:
    """Return ``num_bytes`` or more zero bytes as uint8, in huge pages if possible, which are
    faster.
    """
    size = (num_bytes // PAGE + 1) * PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Use private memory, because systems rarely provide huge pages for shared memory.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # The kernel may not support huge pages.
            memory.madvise(mmap.MADV_HUGEPAGE)
    else:
        memory = mmap.mmap(-1, size)
    return torch.frombuffer(memory, dtype=torch.uint8)
