"""Which batch decodes where: exact steps on a CPU, captured steps on CUDA. Both do the same.

Captured steps belong to the cache of their batch, and a capture takes longer than many a run. So a
few batches are kept with the model for the next run that fits. Knows no forward and no events.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from mars_runtime.decoders import cursor
from mars_runtime.decoders.base import (
    Batch,
    CausalModel,
    Decoding,
    SettingsSource,
    Speculation,
    Vocabulary,
    check_prompts,
)
from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.static.batch import StaticBatch, row_bucket
from mars_runtime.decoders.static.step import StaticModel
from mars_runtime.events import Event
from mars_runtime.prefix_cache import PrefixCache, PrefixHit

MAX_KEPT = 2
"""Idle batches that a model keeps: a race needs one for each of its lanes."""

CAPACITY_STEP = 512


def new_batch(
    model: CausalModel,
    vocabulary: Vocabulary,
    num_rows: int,
    capacity: int,
    costs: ForwardCosts | None = None,
    *,
    steps_per_read: int = 1,
    forced: ForcedAcceptance | None = None,
    prefix_cache: PrefixCache | None = None,
    speculation: Speculation | None = None,
) -> Batch:
    """A batch of ``num_rows`` rows of ``capacity`` tokens each, prompt and answer together.

    On CUDA, and wherever ``forced`` is given, a ``StaticBatch``; steps_per_read is of that alone,
    ``prefix_cache`` and ``speculation``, how draft models are come by, of all others.
    costs: of forwards on this device; without them no row can leave B to be chosen.
    """
    if not _is_static(model, forced):
        return CursorBatch(model, vocabulary, num_rows, capacity, costs, prefix_cache, speculation)
    static = cast(StaticModel, model)
    return StaticBatch(
        static, vocabulary, num_rows, capacity, costs, steps_per_read=steps_per_read, forced=forced
    )


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    costs: ForwardCosts | None = None,
    *,
    steps_per_read: int = 1,
    forced: ForcedAcceptance | None = None,
    hit: PrefixHit | None = None,
    speculation: Speculation | None = None,
) -> Iterator[Event]:
    """Decode a ragged batch by the method that the settings name at each step.

    Yields one Prefill, then one Step per forward; ``seconds`` stay 0 and there is no End: time
    belongs to the engine. costs are needed by ``block_size="auto"`` alone. steps_per_read: on CUDA,
    how many forwards may be under way before one is read; 1 where somebody watches or steers, 4 or
    so where nobody does. forced: for timing models without real weights. hit: of what is kept,
    for a single prompt, and speculation, what ``speculative`` needs; not on CUDA. Raises
    DecodeError at once when a prompt cannot fit.
    """
    if not _is_static(model, forced):
        return cursor.decode(model, vocabulary, prompts, settings, costs, hit, speculation)
    check_prompts(model, prompts, settings().max_new_tokens)
    capacity = max(map(len, prompts)) + settings().max_new_tokens
    kind = (vocabulary, steps_per_read, forced)
    lent = _borrowed(cast(StaticModel, model), kind, len(prompts), capacity, costs)
    return Decoding(lent, prompts, settings)


def _is_static(model: CausalModel, forced: ForcedAcceptance | None) -> bool:
    return model.device.type == "cuda" or forced is not None


Kind = tuple[Vocabulary, int, ForcedAcceptance | None]


@contextmanager
def _borrowed(
    model: StaticModel, kind: Kind, num_rows: int, capacity: int, costs: ForwardCosts | None
) -> Iterator[StaticBatch]:
    """An empty batch with room enough, kept for the next run unless this one fails."""
    idle: list[tuple[Kind, StaticBatch]] = model.kept.setdefault("idle batches", [])
    fitting = [
        entry for entry in idle if entry[0] == kind and entry[1].has_room_for(num_rows, capacity)
    ]
    if fitting:
        idle.remove(fitting[0])
        batch = fitting[0][1]
    else:
        rows = row_bucket(num_rows, 2 * num_rows)
        room = -(-capacity // CAPACITY_STEP) * CAPACITY_STEP
        vocabulary, steps_per_read, forced = kind
        # What a model keeps must not keep the model: whoever lets it go gets its memory at once.
        lent = cast(StaticModel, weakref.proxy(model))
        batch = StaticBatch(
            lent, vocabulary, rows, room, steps_per_read=steps_per_read, forced=forced
        )
    batch.set_costs(costs)
    try:
        yield batch
    except GeneratorExit:
        _keep(idle, kind, batch)
        raise
    _keep(idle, kind, batch)


def _keep(idle: list[tuple[Kind, StaticBatch]], kind: Kind, batch: StaticBatch) -> None:
    idle.append((kind, batch))
    del idle[:-MAX_KEPT]
