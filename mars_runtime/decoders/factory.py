"""Decode prompts on a new batch, on any device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial

from mars_runtime.decoders.base import (
    Decoding,
    SettingsSource,
    Vocabulary,
    check_prompts,
)
from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.draft_model import DraftModels
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.prefix_cache import PrefixHit
from mars_runtime.model.forward import CausalModel
from mars_runtime.runs.events import Event, Prefill


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    costs: ForwardCosts | None = None,
    *,
    hit: PrefixHit | None = None,
    draft_models: DraftModels | None = None,
) -> Decoding:
    """Decode prompts of any lengths together, with the method of the current settings.

    Yields one Prefill, then one Step per forward pass. ``seconds`` stay 0 and there is no End,
    because the engine measures time.

    costs: costs of forward passes on this device; required for ``block_size="auto"``.
    hit: the prefix of the prompt found in the prefix cache; only for a single prompt.
    draft_models: required for the method ``speculative``.

    Raises DecodeError immediately if a prompt does not fit.
    """
    limit = settings().max_new_tokens
    check_prompts(model, prompts, limit)
    num_rows, capacity = len(prompts), max(map(len, prompts)) + limit
    assert hit is None or num_rows == 1, "a prefix hit belongs to a single prompt"
    shape = (num_rows, capacity, costs)
    make = partial(CursorBatch, model, vocabulary, *shape, hit, draft_models)
    return Decoding(make, prompts, settings, hit)


def decode_queue(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    num_rows: int,
    costs: ForwardCosts | None = None,
) -> Iterator[Event]:
    """Decode prompts, ``num_rows`` at a time. When a row ends, the next prompt takes its place.

    Yields one Prefill per prompt, when it joins, and one Step per forward pass. RowStep.row is the
    number of the prompt. ``seconds`` stay 0, and there is no End.

    Raises DecodeError immediately if a prompt does not fit.
    """
    limit = settings().max_new_tokens
    check_prompts(model, prompts, limit)
    num_rows, capacity = min(num_rows, len(prompts)), max(map(len, prompts)) + limit
    return _queue(CursorBatch(model, vocabulary, num_rows, capacity, costs), prompts, settings)


def _queue(
    batch: CursorBatch, prompts: Sequence[Sequence[int]], settings: SettingsSource
) -> Iterator[Event]:
    waiting = deque(enumerate(prompts))
    while waiting or batch.rows:
        while waiting and len(batch.rows) < batch.cache.rows:
            number, prompt = waiting.popleft()
            yield Prefill(batch.add(number, prompt, settings), cache_bytes=batch.num_bytes)
        yield batch.step()
