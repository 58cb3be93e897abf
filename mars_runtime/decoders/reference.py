"""The slow twin: every forward reads the whole prefix again, with nothing kept in between.

For tests, which hold the cursor cache against it, and to show what a cache is worth. It shares the
judgement of predictions with the other decoders and none of their bookkeeping: one row at a time,
the prefix as a plain list. Knows no cursors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from mars_runtime.acceptance import DecodeError, Draw, is_lossless, judge, num_proposals, read
from mars_runtime.decoders.base import (
    CausalModel,
    SettingsSource,
    Vocabulary,
    check_prompt,
    forbidden_ids,
)
from mars_runtime.events import Event, Prefill, RowStep, Step


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
    num_masks = num_proposals(settings, remaining, len(drafts)) - 1
    if num_masks and vocabulary.mask_id is None:
        raise DecodeError("This checkpoint has no mask token: choose the method ar.")
    fed = row.prefix + drafts + [vocabulary.mask_id or 0] * num_masks
    logits = model.forward(
        torch.tensor([fed], device=model.device),
        model.new_cache(1, len(fed)),
        slice(len(row.prefix) - 1, len(fed)),
    )
    assert logits is not None
    places = range(len(row.prefix), len(fed) + 1)
    draw = Draw(settings.temperature, settings.seed, places) if settings.temperature else None
    forbidden = torch.tensor(sorted(forbidden_ids(vocabulary, model)), device=model.device)
    slots = read(logits, forbidden.long(), [settings.metric], [draw])[0]
    verdict = judge(slots, drafts, settings, remaining, vocabulary.eos_ids)
    done = RowStep(
        row=row.number,
        start=num_emitted,
        cursor=0,
        num_pending=len(row.prefix) + len(drafts),
        num_fed=len(fed),
        proposals=tuple(slots),
        accepted=tuple(verdict.emitted),
        num_drafted=len(verdict.drafts),
        settings=settings,
        stop=verdict.stop,
    )
    row.prefix += verdict.emitted
    row.drafts = verdict.drafts
    row.is_live = verdict.stop not in ("eos", "limit")
    return done
