"""What a benchmark is to measure, checked. Knows no model and no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be measured, checked.

    num_slow, has_memory: as of a Series. num_first: tokens of a prompt whose first token is timed
    by itself; 0 for none. llama_cpp: a Python with llama-cpp-python. told: the arguments, to be
    kept with the figures.
    """

    checkpoint: str
    shape: str | None
    acceptance: str | None
    families: tuple[str, ...]
    num_prompts: int
    num_rounds: int
    batch_sizes: tuple[int, ...]
    ways: Mapping[str, DecodeSettings]
    cache_blocks: tuple[int, ...]
    official: Path | None
    llama_cpp: str | None
    num_slow: int | None
    num_first: int
    has_memory: bool
    threads: tuple[int, ...]
    seed: int
    device: str
    dtype: str
    load_before: float
    told: Mapping[str, Any]

    @property
    def cursor(self) -> str | None:
        """The way that block cache, no cache and the official sampler decode too: the first MARS
        way with a fixed B."""
        for name, way in self.ways.items():
            if way.method == "mars" and not way.lossless and isinstance(way.block_size, int):
                return name
        return None
