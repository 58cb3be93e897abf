"""Matrices in the layout that the native products read, all in one piece of memory.

The layout is that of ``product.h``: tiles of 16 outputs, groups of 32 inputs, scales beside them.
Scales and minimums are rounded to fp16, which is what GGUF files hold. Knows tensors alone.
"""

from __future__ import annotations

import contextlib
import mmap

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.model.grouped import GROUP, GroupedMatrix

TILE = 16
PAGE = 1 << 21


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


class Arena:
    """Memory for all matrices, one behind the other."""

    def __init__(self, num_bytes: int) -> None:
        self._whole = huge_memory(num_bytes)
        self._used = 0

    def put(self, packed: Tensor) -> Tensor:
        """A copy of ``packed`` behind what is there already."""
        place = self._whole[self._used : self._used + packed.numel()]
        place.copy_(packed)
        self._used += packed.numel()
        return place


def packed_bytes(matrix: GroupedMatrix) -> int:
    """Bytes that ``pack`` makes of a matrix."""
    outs, ins = matrix.shape
    return -(-outs // TILE) * (ins // GROUP) * (320 if matrix.bits == 4 else 544)


def pack(matrix: GroupedMatrix) -> Tensor:
    """uint8 [tiles, groups, bytes of a group]."""
    outs, ins = matrix.shape
    padding = -outs % TILE
    values = F.pad(matrix.values, (0, 0, 0, padding))
    tiles = values.view(-1, TILE, ins // GROUP, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    parts = [matrix.scales]
    if matrix.bits == 4:
        numbers = tiles[:, :, :4] | (tiles[:, :, 4:] << 4)
        none = torch.zeros_like(matrix.scales)
        parts.append(none if matrix.minimums is None else matrix.minimums)
    else:
        numbers = (tiles.to(torch.int16) + 128).to(torch.uint8)
    columns = [numbers.flatten(2)]
    for part in parts:
        halves = F.pad(part, (0, 0, 0, padding)).view(-1, TILE, ins // GROUP).transpose(1, 2)
        columns.append(halves.to(torch.float16).contiguous().view(torch.uint8))
    return torch.cat(columns, 2)
