"""The slow twin: every forward reads the whole prefix again, with nothing kept in between.

The cursor cache is held against it. It shares the
judgement of predictions with the other decoders and none of their bookkeeping: one row at a time,
the prefix as a plain list, and a forward of its own for each group of masks. Knows no cursors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from mars_runtime.acceptance import Draw, is_lossless, judge, up_to_end
from mars_runtime.decoders.base import (
    CausalModel,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
    forbidden_ids,
)
from mars_runtime.decoders.feed import Feed, group_sizes
from mars_runtime.decoders.lookup import LONGEST, REACH
from mars_runtime.events import Event, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import MAX_DRAFTS, DecodeSettings


@dataclass(slots=True)
class _Row:
    number: int
    prefix: list[int]
    num_prompt: int
    limit: int
    drafts: list[int] = field(default_factory=list)
    is_live: bool = True


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Iterator[Event]:
    """As ``cursor.decode``, by full recomputation: RowStep.cursor is 0 and all tokens are pending.

    A Prefill of no tokens comes first. Raises DecodeError.
    """
    limit = settings().max_new_tokens
    for prompt in prompts:
        check_prompt(model, prompt, limit)
    rows = [_Row(i, list(prompt), len(prompt), limit) for i, prompt in enumerate(prompts)]
    yield Prefill(0)
    while any(row.is_live for row in rows):
        live = [row for row in rows if row.is_live]
        yield Step(tuple(_step(row, model, vocabulary, settings) for row in live))


@torch.inference_mode()
def _step(row: _Row, model: CausalModel, vocabulary: Vocabulary, source: SettingsSource) -> RowStep:
    settings, num_emitted = source(), len(row.prefix) - row.num_prompt
    remaining = max(1, min(row.limit, settings.max_new_tokens) - num_emitted)
    drafts = row.drafts[: remaining - 1] if is_lossless(settings) else []
    sizes = group_sizes(settings, Feed.of(settings), remaining, len(drafts))
    if vocabulary.mask_id is None:
        if any(sizes) and not (settings.lookup and is_lossless(settings)):
            raise NoMaskError
        sizes = (0,) * len(sizes)
    slots = [
        _branch(row.prefix + drafts[:place], size, model, vocabulary, settings)
        for place, size in enumerate(sizes)
    ]
    verdict = judge(
        [choice for choice, *_ in slots],
        [group for _, *group in slots],
        drafts,
        settings,
        remaining,
        vocabulary.eos_ids,
    )
    row.prefix += verdict.emitted
    row.drafts = verdict.drafts
    row.is_live = verdict.stop not in ("eos", "limit")
    found: list[int] = []
    if settings.lookup and is_lossless(settings) and row.is_live:
        found, num_matching = looked_up(row.prefix, MAX_DRAFTS)
        found = up_to_end(found, vocabulary.eos_ids)[: REACH[num_matching - 1]]
    if len(found) > len(row.drafts):
        row.drafts = found
    return RowStep(
        row=row.number,
        start=num_emitted,
        cursor=0,
        num_pending=len(row.prefix) - len(verdict.emitted) + len(drafts),
        num_fed=len(row.prefix) - len(verdict.emitted) + len(drafts) + sum(sizes),
        proposals=verdict.proposals,
        accepted=tuple(verdict.emitted),
        num_drafted=len(verdict.drafts) if row.drafts is verdict.drafts else 0,
        settings=settings,
        stop=verdict.stop,
        groups=sizes if any(sizes[:-1]) else (),
        looked_up=() if row.drafts is verdict.drafts else tuple(row.drafts),
    )


def _branch(
    prefix: list[int],
    num_masks: int,
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: DecodeSettings,
) -> list[Proposal]:
    """What AR chooses behind the prefix and what masks behind it propose, by a forward of just
    these tokens."""
    fed = prefix + [vocabulary.mask_id or 0] * num_masks
    head = slice(len(prefix) - 1, len(fed))
    cache = model.new_cache(1, len(fed))
    hidden = model.hidden(torch.tensor([fed], device=model.device), cache)
    places = range(len(prefix), len(fed) + 1)
    draw = Draw.of(settings, places)
    forbidden = torch.tensor(sorted(forbidden_ids(vocabulary, model)), device=model.device)
    return model.read(hidden, head, forbidden.long(), [settings.metric], [draw])[0]


def looked_up(text: Sequence[int], at_most: int) -> tuple[list[int], int]:
    """What followed the latest earlier occurrence of the longest possible end of the text, by
    looking everywhere, and its length; repeated where the text ends too early."""
    for length in range(LONGEST, 0, -1):
        for start in range(len(text) - 1, length - 1, -1):
            if text[start - length : start] == text[-length:]:
                period = len(text) - start
                return [text[start + place % period] for place in range(at_most)], length
    return [], 0
