"""Training examples on disk, written once and read by many trainings. Knows no model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from mars_runtime.lab.training.data import Example, Examples


def path_of_shard(folder: Path, shard: int) -> Path:
    """Where a shard is kept."""
    return folder / f"{shard}.npz"


def write_shard(folder: Path, shard: int, examples: list[Example]) -> None:
    """Keep the examples of a shard; the file is there whole or not at all."""
    ends = np.cumsum([len(example.ids) for example in examples])
    partial = folder / f"{shard}.partial.npz"
    np.savez(
        partial,
        ids=np.concatenate([np.array(example.ids, np.int32) for example in examples]),
        ends=ends,
        starts=np.array([example.response_start for example in examples]),
    )
    partial.replace(path_of_shard(folder, shard))


def read_shard(folder: Path, shard: int) -> list[Example]:
    """The examples of a shard that was written. Raises FileNotFoundError."""
    with np.load(path_of_shard(folder, shard)) as kept:
        ids, ends, starts = (kept[name].tolist() for name in ("ids", "ends", "starts"))
    spans = zip(pairwise([0, *ends]), starts, strict=True)
    return [Example(tuple(ids[begin:end]), start) for (begin, end), start in spans]


def cycled(folder: Path, num_shards: int, first: int) -> Examples:
    """Shards in a circle, from ``first`` on."""
    return lambda shard: read_shard(folder, (first + shard) % num_shards)
