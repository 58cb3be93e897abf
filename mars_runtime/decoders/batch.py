"""One way in to every way of decoding a batch: AR, cursor cache, block cache, no cache.

Prompts beyond the batch size are decoded in further groups, one after the other; rows keep the
numbers of their prompts. Knows no text, clock or page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import block, factory, uncached
from mars_runtime.decoders.base import (
    CausalModel,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    always,
    check_prompt,
)
from mars_runtime.decoders.propose import unverified
from mars_runtime.events import Event, Step

BatchMethod = Literal["ar", "cursor", "block", "uncached"]
"""``ar``: one token per forward with the cursor cache; ``cursor``, ``block`` (cache) and
``uncached`` (full recomputation): MARS."""

BATCH_METHODS: tuple[BatchMethod, ...] = get_args(BatchMethod)
MAX_BATCH_SIZE = 64


def decode_batch(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    method: BatchMethod,
    settings: SettingsSource,
    batch_size: int,
    cache_block: int = 32,
) -> Iterator[Event]:
    """Decode all prompts by ``method``, ``batch_size`` at a time.

    Yields a Prefill for each group (with the bytes of its cache) and one Step per forward;
    RowStep.row is the number of the prompt. ``seconds`` stay 0 and there is no End. ``settings``
    are read once per step; their ``method`` is replaced by this one's. ``cache_block`` matters to
    ``block`` alone. Raises DecodeError, one sentence, at once for what cannot be decoded.
    """
    if method not in BATCH_METHODS:
        raise DecodeError(f"Choose a method among {', '.join(BATCH_METHODS)}.")
    is_whole = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if not is_whole or not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise DecodeError(f"The batch size must be a whole number from 1 to {MAX_BATCH_SIZE}.")
    if method == "block":
        block.check_cache_block(cache_block)
    if not prompts:
        raise DecodeError("Give at least one prompt.")
    source = always("ar" if method == "ar" else "mars", settings)
    now = unverified(source) if method in ("block", "uncached") else source()
    if now.is_auto:
        raise DecodeError("A batch has one B for all its rows: give a number as B.")
    if now.num_proposals > 1 and vocabulary.mask_id is None:
        raise NoMaskError
    for prompt in prompts:
        check_prompt(model, prompt, now.max_new_tokens)
    groups = (
        range(i, min(i + batch_size, len(prompts))) for i in range(0, len(prompts), batch_size)
    )
    return _all_groups(model, vocabulary, prompts, method, source, groups, cache_block)


def _all_groups(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    method: BatchMethod,
    settings: SettingsSource,
    groups: Iterable[range],
    cache_block: int,
) -> Iterator[Event]:
    for group in groups:
        chosen = [prompts[row] for row in group]
        if method == "block":
            events = block.decode(model, vocabulary, chosen, settings, cache_block)
        elif method == "uncached":
            events = uncached.decode(model, vocabulary, chosen, settings)
        else:
            events = factory.decode(model, vocabulary, chosen, settings)
        for event in events:
            yield _renumbered(event, group.start) if isinstance(event, Step) else event


def _renumbered(step: Step, first: int) -> Step:
    if not first:
        return step
    rows = tuple(replace(row, row=row.row + first) for row in step.rows)
    return replace(step, rows=rows, idle=tuple(replace(i, row=i.row + first) for i in step.idle))
