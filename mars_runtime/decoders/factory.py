"""Which batch decodes where: exact steps on a CPU, captured steps on CUDA. Both do the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from mars_runtime.decoders.base import SettingsSource, Vocabulary
from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.static import StaticBatch
from mars_runtime.decoders.static.step import StaticModel
from mars_runtime.events import Event, Prefill, Step


class Batch(Protocol):
    """Rows that join, are decoded together and leave; see ``CursorBatch``."""

    cache: Any

    @property
    def rows(self) -> tuple[int, ...]: ...
    def add(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> int: ...
    def drop(self, number: int) -> None: ...
    def step(self) -> Step: ...


def new_batch(
    model: StaticModel,
    vocabulary: Vocabulary,
    num_rows: int,
    capacity: int,
    *,
    steps_per_read: int = 1,
    forced: ForcedAcceptance | None = None,
) -> Batch:
    """A batch of ``num_rows`` rows of ``capacity`` tokens each, prompt and answer together.

    On CUDA, and wherever ``forced`` is given, a ``StaticBatch``: keep it for as long as it may be
    used again, since its graphs belong to its cache. steps_per_read: 1 where somebody watches or
    steers, 4 or 8 where nobody does. On a CPU there is nothing to wait for and it is not used.
    """
    if model.device.type == "cuda" or forced is not None:
        return StaticBatch(
            model, vocabulary, num_rows, capacity, steps_per_read=steps_per_read, forced=forced
        )
    return CursorBatch(model, vocabulary, num_rows, capacity)


def decode_on(
    batch: Batch, prompts: Sequence[Sequence[int]], settings: SettingsSource
) -> Iterator[Event]:
    """Decode prompts on a batch that is empty and has room for them, and leave it empty again.

    Yields one Prefill, then the Steps; rows are numbered from 0. Raises DecodeError.
    """
    try:
        num_fed = sum(batch.add(row, prompt, settings) for row, prompt in enumerate(prompts))
        yield Prefill(num_fed, cache_bytes=batch.cache.num_bytes)
        while batch.rows:
            yield batch.step()
    finally:
        for row in batch.rows:
            batch.drop(row)
