"""The slow twin of the cursor cache: every forward computes the whole prefix again. It shares the
acceptance rule with the other decoders and none of their bookkeeping: one row at a time, the prefix
as a plain list, and a separate forward for each group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mars_runtime.acceptance import accept_prefix, up_to_end
from mars_runtime.decoders.base import (
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
    forbidden_ids,
)
from mars_runtime.decoders.decision import accept, eos_in_force
from mars_runtime.decoders.draft_model import DraftModel
from mars_runtime.decoders.lookup import MAX_MATCH, REACH
from mars_runtime.decoders.methods import MAX_DRAFTS
from mars_runtime.decoders.plan import MAX_RAISED, TAU_STEP, FeedLimits, group_sizes, threshold_for
from mars_runtime.model.forward import CausalModel, SamplingMetadata
from mars_runtime.model.predictions import Draw, Penalty
from mars_runtime.runs.events import FINAL, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import DecodeSettings


@dataclass(slots=True)
class _Row:
    number: int
    prefix: list[int]
    num_prompt: int
    limit: int
    drafts: list[int] = field(default_factory=list)
    raised: float = 0.0
    num_new: int = 0
    is_live: bool = True


@dataclass
class _Reader:
    model: CausalModel
    vocabulary: Vocabulary

    def read(
        self, text: list[int], num_masks: int, settings: DecodeSettings, num_prompt: int,
        cache: Any = None,
    ) -> list[Proposal]:  # fmt: skip
        """What AR chooses behind the text and what masks behind it propose, by a forward of just
        these tokens, or of those that ``cache`` lacks."""
        cached = cache.cursors[0] if cache else 0
        fed = text[cached:] + [self.vocabulary.mask_id or 0] * num_masks
        cache = cache or self.model.new_cache(1, len(fed))
        hidden = self.model.hidden(torch.tensor([fed], device=self.model.device), cache)
        places = range(len(text), len(text) + num_masks + 1)
        size, known = self.model.config.vocab_size, [len(text)] * (num_masks + 1)
        ends = self.vocabulary.eos_ids
        penalty = Penalty.of(settings, text, num_prompt, known, size, ends, places)
        forbidden, draws = forbidden_ids(self.vocabulary, self.model), [Draw.of(settings, places)]
        sampling = SamplingMetadata(forbidden, [settings.metric], draws, penalties=[penalty])
        return self.model.predict(hidden, slice(len(text) - cached - 1, len(fed)), sampling)[0]


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    draft: DraftModel | None = None,
) -> Iterator[Event]:
    """As ``decoders.decode`` by full recomputation: RowStep.cursor is 0 and all tokens are pending.

    A Prefill of no tokens comes first. ``draft``: the model that drafts where the method is
    speculative. Raises DecodeError.
    """
    limit, target = settings().max_new_tokens, _Reader(model, vocabulary)
    for prompt in prompts:
        check_prompt(model, prompt, limit)
    rows = [_Row(i, list(prompt), len(prompt), limit) for i, prompt in enumerate(prompts)]
    yield Prefill(0)
    while any(row.is_live for row in rows):
        yield Step(tuple(_step(row, target, settings(), draft) for row in rows if row.is_live))


@torch.inference_mode()
def _step(
    row: _Row, target: _Reader, settings: DecodeSettings, draft: DraftModel | None
) -> RowStep:
    num_emitted, eos_ids = len(row.prefix) - row.num_prompt, target.vocabulary.eos_ids
    remaining = max(1, min(row.limit, settings.max_new_tokens) - num_emitted)
    ends = eos_in_force(settings, eos_ids)
    feed = FeedLimits.of(settings)
    drafts = row.drafts[: min(feed.num_drafts, remaining - 1)]
    sizes = group_sizes(settings, feed, remaining, len(drafts))
    if target.vocabulary.mask_id is None:
        if any(sizes) and not (settings.lookup and settings.is_verified):
            raise NoMaskError
        sizes = (0,) * len(sizes)
    slots = [
        target.read(row.prefix + drafts[:place], size, settings, row.num_prompt)
        for place, size in enumerate(sizes)
    ]
    threshold, checks = _threshold(row, slots[0][0], target, settings)
    verdict = accept(
        [choice for choice, *_ in slots],
        [group for _, *group in slots],
        drafts,
        settings if threshold is None else replace(settings, tau=threshold),
        remaining,
        eos_ids,
        row.prefix[row.num_prompt :],
    )
    num_pending = len(row.prefix) + len(drafts)
    row.prefix += verdict.emitted
    row.num_new = len(verdict.emitted)
    row.drafts = verdict.drafts
    row.is_live = verdict.stop not in FINAL
    collected: list[int] = []
    guessed: list[int] = []
    left = remaining - len(verdict.emitted) - 1
    if settings.method == "jacobi" and row.is_live:
        guessed = _guess(row, min(settings.num_guesses, left), ends)
    elif settings.lookup and settings.is_verified and row.is_live:
        collected, num_matching = looked_up(row.prefix, MAX_DRAFTS)
        collected = up_to_end(collected, ends)[: REACH[num_matching - 1]]
    is_looked_up = len(collected) > len(row.drafts)
    if is_looked_up:
        row.drafts = collected
    waiting, num_forwards = row.drafts, 0
    if draft is not None and settings.method == "speculative" and row.is_live:
        more = min(settings.num_guesses, left) - len(waiting)
        text = [*row.prefix, *waiting]
        added, num_forwards = _drafted(text, more, settings, draft, row.num_prompt, ends)
        row.drafts = [*waiting, *added]
    return RowStep(
        row=row.number,
        start=num_emitted,
        cursor=0,
        num_pending=num_pending,
        num_fed=num_pending + sum(sizes),
        proposals=verdict.proposals,
        accepted=tuple(verdict.emitted),
        num_drafted=0 if is_looked_up else len(waiting) - len(guessed),
        settings=settings,
        stop=verdict.stop,
        groups=sizes if any(sizes[:-1]) else (),
        looked_up=tuple(waiting) if is_looked_up else (),
        guessed=(*guessed, *row.drafts[len(waiting) :]),
        num_draft_forwards=num_forwards,
        checks=tuple((check.token, check.confidence) for check in checks),
        threshold=threshold,
    )


def _drafted(
    text: list[int], at_most: int, settings: DecodeSettings, draft: DraftModel, num_prompt: int,
    ends: Collection[int],
) -> tuple[list[int], int]:  # fmt: skip
    collected: list[int] = []
    num_forwards, reader = 0, _Reader(draft.model, draft.vocabulary)
    is_masked = settings.masked in ("both", "draft")
    while len(collected) < at_most and [*text, *collected][-1] not in ends:
        size = min(at_most - len(collected), draft.block_size) if is_masked else 1
        slots = reader.read([*text, *collected], size - 1, settings, num_prompt)
        taken = accept_prefix([slot.confidence for slot in slots], settings.tau)
        collected = up_to_end([*collected, *(slot.token for slot in slots[:taken])], ends)
        num_forwards += 1
    return collected, num_forwards


def _threshold(
    row: _Row, proposal: Proposal, target: _Reader, settings: DecodeSettings
) -> tuple[float | None, list[Proposal]]:
    """τ of a forward where it adapts, and what AR would have chosen in the places of the latest
    tokens but the first of them, by a forward for each."""
    if not settings.is_adaptive:
        return None, []
    if settings.tau_policy == "entropy":
        return threshold_for(settings, proposal, 0.0), []
    checks = []
    for at in range(len(row.prefix) - max(row.num_new - 1, 0), len(row.prefix)):
        checks += target.read(row.prefix[:at], 0, settings, row.num_prompt)
        is_same = checks[-1].token == row.prefix[at]
        wanted = settings.agreement_target
        row.raised += TAU_STEP * (wanted - 1 if is_same else wanted)
        row.raised = min(MAX_RAISED, max(0.0, row.raised))
    return settings.tau + (1 - settings.tau) * row.raised, checks


def _guess(row: _Row, at_most: int, ends: Collection[int]) -> list[int]:
    """Make as many drafts of the answers there are, by saying the last token again where there is
    none; returns what was said again."""
    guessed: list[int] = []
    while len(row.drafts) < at_most and (last := [*row.prefix, *row.drafts][-1]) not in ends:
        row.drafts.append(last)
        guessed.append(last)
    return guessed


@torch.inference_mode()
def decode_blocks(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    settings: DecodeSettings,
    width: int,
) -> Iterator[tuple[Sequence[Proposal], list[int]]]:
    """Decode one prompt with the paper's block cache: yield the proposals and the tokens that each
    forward emits. A block of ``width`` tokens behind the prompt is filled, with masks up to its end
    at most; then its tokens are fed once more, which makes their keys and values final."""
    prefix, limit, filled = list(prompt), settings.max_new_tokens, 1
    reader = _Reader(model, vocabulary)
    cache = model.new_cache(1, len(prompt) + limit)
    if prompt[:-1]:
        model.hidden(torch.tensor([prompt[:-1]], device=model.device), cache)
    cache.cursors[0], size, stop = len(prompt) - 1, 1, ""
    while stop not in FINAL:
        remaining, filled = limit - len(prefix) + len(prompt), len(prefix) - cache.cursors[0]
        num_masks = max(0, min(settings.num_proposals, remaining, size - filled) - 1)
        choice, *group = reader.read(prefix, num_masks, settings, len(prompt), cache)
        given = settings, remaining, vocabulary.eos_ids, prefix[len(prompt) :]
        verdict = accept([choice], [group], [], *given)
        prefix += verdict.emitted
        stop = verdict.stop
        if filled == size:
            cache.cursors[0] += size
            size = min(width, remaining)
        yield verdict.proposals, verdict.emitted


def looked_up(text: Sequence[int], at_most: int) -> tuple[list[int], int]:
    """What followed the latest earlier occurrence of the longest possible end of the text, by
    looking everywhere, and its length; repeated where the text ends too early."""
    for length in range(MAX_MATCH, 0, -1):
        for start in range(len(text) - 1, length - 1, -1):
            if text[start - length : start] == text[-length:]:
                period = len(text) - start
                return [text[start + place % period] for place in range(at_most)], length
    return [], 0
