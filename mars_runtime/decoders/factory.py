"""Which batch decodes where: exact steps on a CPU, captured steps on CUDA. Both do the same.

Captured steps belong to the cache of their batch, and a capture takes longer than many a run. So a
few batches are kept with the model for the next run that fits.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import cast

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.base import (
    Batch,
    CausalModel,
    Decoding,
    SettingsSource,
    Vocabulary,
    check_prompts,
)
from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.draft_model import DraftModels
from mars_runtime.decoders.forced import ForcedAcceptance, ForcedModel
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.static.batch import StaticBatch, row_bucket
from mars_runtime.decoders.static.step import StaticModel
from mars_runtime.prefix_cache import PrefixCache, PrefixHit

MAX_KEPT = 2
"""Idle batches that a model keeps: a race needs one for each of its lanes."""

CAPACITY_STEP = 512

NO_ADDITIONS = (
    "Presence and frequency penalties and the logit bias need a model on a CPU: leave them out."
)


def new_batch(
    model: CausalModel,
    vocabulary: Vocabulary,
    num_rows: int,
    capacity: int,
    costs: ForwardCosts | None = None,
    *,
    prefix_cache: PrefixCache | None = None,
    draft_models: DraftModels | None = None,
) -> Batch:
    """A batch of ``num_rows`` rows of ``capacity`` tokens each, prompt and answer together: on CUDA
    a ``StaticBatch``, which has no use for ``prefix_cache`` and ``draft_models``.

    costs: of forwards on this device; without them no row can leave B to be chosen.
    """
    if _is_static(model):
        return StaticBatch(cast(StaticModel, model), vocabulary, num_rows, capacity, costs)
    return CursorBatch(model, vocabulary, num_rows, capacity, costs, prefix_cache, draft_models)


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
    draft_models: DraftModels | None = None,
) -> Decoding:
    """Decode a ragged batch by the method that the settings name at each step.

    Yields one Prefill, then one Step per forward; ``seconds`` stay 0 and there is no End: time
    belongs to the engine. costs are needed by ``block_size="auto"`` alone. steps_per_read: on CUDA,
    how many forwards may be under way before one is read; 1 where somebody watches or steers, 4 or
    so where nobody does. forced: for timing models without real weights. hit: of what is kept,
    for a single prompt, and draft_models, what ``speculative`` needs; not on CUDA. Raises
    DecodeError at once when a prompt cannot fit.
    """
    limit = settings().max_new_tokens
    check_prompts(model, prompts, limit)
    num_rows, capacity = len(prompts), max(map(len, prompts)) + limit
    if _is_static(model, forced):
        if settings().has_additions:
            raise DecodeError(NO_ADDITIONS)
        kind, static = (vocabulary, steps_per_read, forced), cast(StaticModel, model)
        return Decoding(
            lambda: _borrowed(static, kind, num_rows, capacity, costs), prompts, settings
        )
    assert hit is None or num_rows == 1, "a hit is of one prompt"
    if forced is not None:
        model = ForcedModel(model, forced, vocabulary.mask_id)
    exact = partial(new_batch, model, vocabulary, num_rows, capacity, costs)
    return Decoding(
        lambda: nullcontext(exact(prefix_cache=hit, draft_models=draft_models)),
        prompts,
        settings,
        hit,
    )


def _is_static(model: CausalModel, forced: ForcedAcceptance | None = None) -> bool:
    can_capture = hasattr(model, "forward_at")
    return model.device.type == "cuda" or (forced is not None and can_capture)


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
