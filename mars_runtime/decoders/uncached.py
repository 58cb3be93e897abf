"""No cache at all: every forward reads each row's whole prefix again, all rows in one batch.

What a cache is worth is seen against this; tests/slow_twin.py does the same one row at a time.
Knows no cursors: causality lets shorter rows carry masks behind their end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from mars_runtime.acceptance import num_proposals
from mars_runtime.decoders.base import (
    CausalModel,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
)
from mars_runtime.decoders.propose import Ask, Proposer, unverified
from mars_runtime.events import Event, Prefill, Step


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Iterator[Event]:
    """As ``cursor.decode`` without ``lossless``, by full recomputation.

    RowStep.cursor is 0 and all tokens are pending. Rows that end leave the batch. A Prefill of no
    tokens comes first; its ``cache_bytes`` hold the keys and values of the longest forward, which
    are written anew by each. Raises DecodeError.
    """
    limit = unverified(settings).max_new_tokens
    for prompt in prompts:
        check_prompt(model, prompt, limit)
    return _events(model, vocabulary, prompts, settings)


def _events(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Iterator[Event]:
    limit = settings().max_new_tokens
    cache = model.new_cache(len(prompts), max(map(len, prompts)) + limit)
    proposer = Proposer(model, vocabulary, cache)
    prefixes = {row: list(prompt) for row, prompt in enumerate(prompts)}
    yield Prefill(0, cache_bytes=cache.num_bytes)
    while prefixes:
        asks = [
            _ask(place, row, prefix, len(prompts[row]), limit, settings)
            for place, (row, prefix) in enumerate(prefixes.items())
        ]
        if vocabulary.mask_id is None and any(ask.num_proposals > 1 for ask in asks):
            raise NoMaskError
        num_fed = max(ask.num_pending + ask.num_proposals - 1 for ask in asks)
        with torch.inference_mode():
            steps = proposer.step(list(prefixes.values()), num_fed, asks)
        for step in steps:
            prefixes[step.row] += step.accepted
            if step.stop in ("eos", "limit"):
                del prefixes[step.row]
        yield Step(steps)


def _ask(
    place: int, row: int, prefix: list[int], num_prompt: int, limit: int, source: SettingsSource
) -> Ask:
    settings, start = unverified(source), len(prefix) - num_prompt
    remaining = max(1, min(limit, settings.max_new_tokens) - start)
    return Ask(
        place=place,
        row=row,
        settings=settings,
        start=start,
        cursor=0,
        num_pending=len(prefix),
        num_proposals=num_proposals(settings, remaining, 0),
        remaining=remaining,
    )
