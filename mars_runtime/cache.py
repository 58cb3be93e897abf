"""Room for the keys and values of several rows, with one cursor a row: the KV caches.

Knows no model and no tokens: it is memory and numbers. Going back is moving a number, never a copy;
copies are made only where rows change places: the last one moves into the place of one that left,
and two are swapped when one is to sit out.
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
"""Slots of a block, which is what prefixes are kept by; as in ``attention.h``."""
PAGE = 1 << 21
Shape = tuple[int, int, int, int, int]
"""Layers, rows, capacity in tokens, heads of keys (and as many of values), size of a head."""
C = TypeVar("C", bound="KVCache")


class KVCache:
    """Keys and values of every layer in one tensor. Slot s of a row belongs to its position s.

    store: [layers, rows, units, ...], of ``slots_per_unit`` slots that lie together.
    cursors: for each row, how many leading slots are final. What lies behind a cursor is scratch
        and the next forward overwrites it.
    captured: the forwards that a model has captured on this memory (``model/captured.py``).
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
        """Memory that keys and values of this shape take, in bytes."""
        return 2 * math.prod(shape) * dtype.itemsize

    def whole(self: C) -> C:
        """All rows, on the same memory, their cursors at 0."""
        fresh = copy.copy(self)
        fresh.cursors = [0] * self.rows
        return fresh

    def uncaptured(self: C) -> C:
        """The same memory without its captured forwards."""
        plain = copy.copy(self)
        plain.captured = None
        return plain

    def row(self: C, row: int) -> C:
        """One row alone, on the same memory, its cursor a copy: to prefill it."""
        alone = self.uncaptured()
        alone.rows, alone.cursors = 1, [self.cursors[row]]
        alone.store = self.store[:, row : row + 1]
        return alone

    def clear(self, row: int, num_slots: int | None = None) -> None:
        """Make the row new. What an earlier tenant left, NaN perhaps, must not reach the next;
        ``num_slots``: it wrote no further than that."""
        self.cursors[row] = 0
        end = None if num_slots is None else self._num_units(num_slots)
        self.store[:, row, :end].zero_()

    def move(self, source: int, target: int, num_slots: int | None = None) -> None:
        """Put row ``source`` in the place of row ``target``, which left and wrote no further than
        ``num_slots``."""
        cursor = self.cursors[source]
        self.clear(target, num_slots)
        used = self._num_units(cursor)
        self.store[:, target, :used] = self.store[:, source, :used]
        self.cursors[target] = cursor

    def swap(self, one: int, other: int) -> None:
        """Let two rows change places, with all that they ever wrote."""
        cursors = self.cursors
        wrote = min(max(cursors[one], cursors[other]) + MAX_FED, self.capacity)
        used = self._num_units(wrote)
        kept = self.store[:, one, :used].clone()
        self.store[:, one, :used] = self.store[:, other, :used]
        self.store[:, other, :used] = kept
        cursors[one], cursors[other] = cursors[other], cursors[one]

    def _num_units(self, num_slots: int) -> int:
        return -(-num_slots // self.slots_per_unit)


class BlockKVCache(KVCache):
    """As PyTorch's attention reads it.

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
        """Copy block number ``index`` of a row, BLOCK slots that are all final."""
        return self.store[:, row, index * BLOCK : (index + 1) * BLOCK].clone()

    def put(self, row: int, index: int, block: Tensor) -> None:
        """Make ``block``, of any row, block number ``index`` of this one."""
        self.store[:, row, index * BLOCK : (index + 1) * BLOCK] = block


class PackedKVCache(KVCache):
    """As the native forward reads it: in blocks of slots, in fp16.

    store: fp16 [layers, rows, blocks, num_kv_heads, 2 * head_dim * 32]: of a block and head the
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
        """A copy of block number ``index`` of a row, all of whose slots are final."""
        return self.store[:, row, index].clone()

    def put(self, row: int, index: int, block: Tensor) -> None:
        """Make ``block``, of any row, block number ``index`` of this one."""
        self.store[:, row, index] = block


def huge_memory(num_bytes: int) -> Tensor:
    """uint8 zeros, in huge pages where the system gives them: a forward reads its memory from front
    to end, and looking up small pages would hold it up."""
    size = (num_bytes // PAGE + 1) * PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Private: by default it would be shared memory, to which systems seldom give huge pages.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    else:
        memory = mmap.mmap(-1, size)
    return torch.frombuffer(memory, dtype=torch.uint8)
