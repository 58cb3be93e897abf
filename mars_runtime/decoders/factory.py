"""Batches and decoding for every device: the one place where a ``CursorBatch`` is made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

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
from mars_runtime.prefix_cache import PrefixCache, PrefixHit


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
    """A batch of ``num_rows`` rows of ``capacity`` tokens each, prompt and answer together.

    costs: of forwards on this device; ``block_size="auto"`` needs them.
    """
    return CursorBatch(model, vocabulary, num_rows, capacity, costs, prefix_cache, draft_models)


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    costs: ForwardCosts | None = None,
    *,
    forced: ForcedAcceptance | None = None,
    hit: PrefixHit | None = None,
    draft_models: DraftModels | None = None,
) -> Decoding:
    """Decode a ragged batch by the method that the settings name at each step.

    Yields one Prefill, then one Step per forward; ``seconds`` stay 0 and there is no End: time
    belongs to the engine. costs: needed by ``block_size="auto"`` only. forced: the number of tokens
    that each forward takes, for timing random weights. hit: the cached prefix of a single prompt.
    draft_models: needed by ``speculative`` only. Raises DecodeError at once when a prompt cannot
    fit.
    """
    limit = settings().max_new_tokens
    check_prompts(model, prompts, limit)
    num_rows, capacity = len(prompts), max(map(len, prompts)) + limit
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
