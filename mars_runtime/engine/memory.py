"""How many rows of how many tokens the keys and values of an engine may take: fixed up front."""

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
"""Memory for keys and values: so much on a CPU, this share of what is free on a GPU once the
weights are there; the rest is for races and solo runs, which bring their own."""
KEPT_SHARE = 0.25
"""Of that memory, for what is kept of texts that are over (``prefix_cache.py``)."""
WORTHWHILE_TOKENS = 1024
"""Rows shorter than this (and than what the model holds) are made fewer rather than shorter."""


@dataclass(frozen=True, slots=True)
class Room:
    """``num_rows`` rows of ``capacity`` tokens each, prompt and answer together."""

    num_rows: int
    capacity: int


def room_for(model: Model, max_rows: int, num_bytes: int) -> Room:
    """As many rows as asked, each as long as the model holds, as far as ``num_bytes`` go."""
    num_tokens = num_bytes // slot_bytes(model)
    whole = model.config.max_positions
    least = min(whole, WORTHWHILE_TOKENS) + MAX_FED
    num_rows = max(1, min(max_rows, num_tokens // least))
    return Room(num_rows, max(1, min(whole, num_tokens // num_rows - MAX_FED)))


def store_for(model: Model, num_bytes: int) -> BlockPrefixCache | None:
    """Make a prefix cache of a share of ``num_bytes``, but not for every model on a CPU.

    One that is not bitwise gets None there: the last bits of its results, and with them near ties,
    would show whether a prefix was kept. On a GPU no result is that exact, with or without one.
    """
    if not model.is_bitwise and model.device.type == "cpu":
        return None
    from mars_runtime.cache import BLOCK

    return BlockPrefixCache(BLOCK, BLOCK * slot_bytes(model), int(num_bytes * KEPT_SHARE))


def slot_bytes(model: Model) -> int:
    """Keys and values of one token."""
    return BlockKVCache.bytes_needed(model.config.cache_shape(1, 1), model.cache_dtype)


def free_bytes(model: Model) -> int:
    """What may be given to keys and values on the model's device."""
    if model.device.type != "cuda":
        return CPU_BYTES
    import torch

    return int(torch.cuda.mem_get_info(model.device)[0] * CUDA_SHARE)
