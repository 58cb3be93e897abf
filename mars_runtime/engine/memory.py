"""Memory of an engine's keys and values: number and length of its rows, fixed at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.cache import BlockKVCache
from mars_runtime.prefix_cache import BlockPrefixCache
from mars_runtime.settings import MAX_FED

if TYPE_CHECKING:
    from mars_runtime.model.build import Model

CPU_BYTES = 2**30
CUDA_SHARE = 0.5
"""Memory for keys and values: CPU_BYTES on a CPU, CUDA_SHARE of the memory that is free on a GPU
after loading the weights. The rest is for races and solo runs, which allocate their own."""
KEPT_SHARE = 0.25
"""Share of that memory for the prefix cache (``prefix_cache.py``)."""
WORTHWHILE_TOKENS = 1024
"""Minimum length of a row (or the model's maximum): with less memory the number of rows shrinks."""


@dataclass(frozen=True, slots=True)
class Room:
    """``num_rows`` rows of ``capacity`` tokens each, prompt and answer together."""

    num_rows: int
    capacity: int


def room_for(model: Model, max_rows: int, num_bytes: int) -> Room:
    """Return up to ``max_rows`` rows, each as long as the model allows and ``num_bytes`` permit."""
    num_tokens = num_bytes // slot_bytes(model)
    whole = model.config.max_positions
    shortest = min(whole, WORTHWHILE_TOKENS) + MAX_FED
    num_rows = max(1, min(max_rows, num_tokens // shortest))
    return Room(num_rows, max(1, min(whole, num_tokens // num_rows - MAX_FED)))


def store_for(model: Model, num_bytes: int) -> BlockPrefixCache | None:
    """Return a prefix cache that uses a share of ``num_bytes``, or None.

    A model on a CPU that is not bitwise gets None: the last bits of its results, and so near ties,
    would reveal whether a prefix was cached. On a GPU results vary in their last bits anyway.
    """
    if not model.is_bitwise and model.device.type == "cpu":
        return None
    from mars_runtime.cache import BLOCK

    return BlockPrefixCache(BLOCK, BLOCK * slot_bytes(model), int(num_bytes * KEPT_SHARE))


def slot_bytes(model: Model) -> int:
    """Return the bytes of the keys and values of one token."""
    return BlockKVCache.bytes_needed(model.config.cache_shape(1, 1), model.cache_dtype)


def free_bytes(model: Model) -> int:
    """Return the bytes available for keys and values on the model's device."""
    if model.device.type != "cuda":
        return CPU_BYTES
    import torch

    return int(torch.cuda.mem_get_info(model.device)[0] * CUDA_SHARE)
