"""Memory for an engine's keys and values, planned once at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.cache import BlockKVCache
from mars_runtime.decoders.prefix_cache import BlockPrefixCache
from mars_runtime.settings import MAX_FED

if TYPE_CHECKING:
    from mars_runtime.model.build import Model

CPU_BYTES = 2**30
CUDA_SHARE = 0.5
"""Share of the free GPU memory for keys and values. Races allocate their own caches in the rest."""
PREFIX_CACHE_SHARE = 0.25
"""Share of that memory for the prefix cache."""
MIN_ROW_TOKENS = 1024
"""If memory is short, the number of rows is reduced before the length falls below this."""


@dataclass(frozen=True, slots=True)
class Room:
    """``num_rows`` rows of ``capacity`` tokens."""

    num_rows: int
    capacity: int


def room_for(model: Model, max_rows: int, num_bytes: int) -> Room:
    num_tokens = num_bytes // slot_bytes(model)
    max_length = model.config.max_positions
    min_length = min(max_length, MIN_ROW_TOKENS) + MAX_FED
    num_rows = max(1, min(max_rows, num_tokens // min_length))
    return Room(num_rows, max(1, min(max_length, num_tokens // num_rows - MAX_FED)))


def new_prefix_cache(model: Model, num_bytes: int) -> BlockPrefixCache | None:
    """Return None for a CPU model that is not bitwise: its near ties would depend on whether a
    prefix was cached.
    """
    if not model.is_bitwise and model.device.type == "cpu":
        return None
    from mars_runtime.cache import BLOCK

    return BlockPrefixCache(BLOCK, BLOCK * slot_bytes(model), int(num_bytes * PREFIX_CACHE_SHARE))


def slot_bytes(model: Model) -> int:
    return BlockKVCache.bytes_needed(model.config.cache_shape(1, 1), model.cache_dtype)


def free_bytes(model: Model) -> int:
    if model.device.type != "cuda":
        return CPU_BYTES
    import torch

    return int(torch.cuda.mem_get_info(model.device)[0] * CUDA_SHARE)
