"""Laws of speculative decoding, fp32 on a CPU, with real weights: AR's text whoever drafts, and the
cached decoder equals its slow twin. Four combinations: either model with masks or without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import steps_of, tokens_of
from law_checkpoints import SAMPLED, load, plain, task_prompts, word_prompts

from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.draft_model import DraftModel, DraftModels
from mars_runtime.events import Event, RowStep, Step
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import MASKED, MAX_BLOCK_SIZE, DecodeSettings
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")

USUAL = DecodeSettings("speculative", tau=0.4, block_size=4, max_new_tokens=24)
LEVELS = [0.0, 0.5, 0.95]


def draft_of(checkpoint: Checkpoint, block_size: int = MAX_BLOCK_SIZE) -> DraftModel:
    return DraftModel(checkpoint.model, checkpoint.tokenizer, block_size)


def models_of(draft: DraftModel, block_size: int = MAX_BLOCK_SIZE) -> DraftModels:
    return DraftModels(lambda name: draft, block_size)


def run(
    target: Checkpoint, draft: Checkpoint, prompts: Sequence[Sequence[int]], now: DecodeSettings
) -> list[Event]:
    models = models_of(draft_of(draft))
    model, tokenizer = target.model, target.tokenizer
    return list(decode(model, tokenizer, prompts, lambda: now, draft_models=models))


def outline(step: RowStep) -> tuple[Any, ...]:
    """What a step decided, apart from how it was fed."""
    tokens = tuple(slot.token for slot in step.proposals)
    asked = step.groups, step.stop, step.num_draft_forwards
    return step.start, tokens, step.accepted, step.drafts, step.guessed, asked


def check_same_steps(cached: Iterable[Event], slow: Iterable[Event], num_rows: int) -> None:
    """Check that the cached decoder decided in each step what the slow twin decided."""
    cached, slow = list(cached), list(slow)
    for row in range(num_rows):
        ours, theirs = steps_of(cached, row), steps_of(slow, row)
        assert [outline(step) for step in ours] == [outline(step) for step in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert [token for token, _ in one.checks] == [token for token, _ in other.checks]


@pytest.mark.parametrize("masked", MASKED)
def test_it_writes_what_the_target_alone_writes(
    foreseeing: Checkpoint, small: Checkpoint, masked: Any
) -> None:
    for index, prompt in enumerate(word_prompts(foreseeing, 8, seed=21)):
        for target, draft in ((foreseeing, small), (small, foreseeing), (foreseeing, foreseeing)):
            now = replace(
                USUAL,
                masked=masked,
                tau=LEVELS[index % 3],
                block_size=(1, 3, 8, 16)[index % 4],
                groups=("one", "every")[index // 2 % 2],
                lookup=index % 5 == 0,
            )
            found = tokens_of(run(target, draft, [prompt], now))
            assert found == plain(target, [prompt], 24), now


def test_at_a_temperature_it_writes_what_the_target_alone_draws(
    foreseeing: Checkpoint, small: Checkpoint
) -> None:
    changes: dict[str, Any] = {"temperature": 0.8, "seed": 3}
    for prompt in word_prompts(small, 8, seed=22):
        now = replace(USUAL, groups="every", **changes)
        found = tokens_of(run(small, foreseeing, [prompt], now))
        assert found == plain(small, [prompt], 24, **changes)


@pytest.mark.parametrize("masked", MASKED)
@pytest.mark.parametrize("block_size", [1, 3, 8])
def test_cached_equals_full_recomputation(
    foreseeing: Checkpoint, small: Checkpoint, block_size: int, masked: Any
) -> None:
    prompts = word_prompts(foreseeing, 4, seed=block_size)
    now = replace(USUAL, block_size=block_size, masked=masked, groups="every", lookup=True)
    cached = run(foreseeing, small, prompts, now)
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    slow = slow_twin.decode(model, tokenizer, prompts, lambda: now, draft_of(small))
    check_same_steps(cached, slow, len(prompts))


def test_a_row_equals_the_row_alone_in_any_company(
    foreseeing: Checkpoint, small: Checkpoint
) -> None:
    prompts = word_prompts(foreseeing, 8, seed=23)
    kinds = [
        USUAL,
        replace(USUAL, masked="none", block_size=8),
        DecodeSettings("ar", max_new_tokens=24),
        replace(USUAL, tau=0.0, groups="every", draft="other"),
        DecodeSettings(tau=0.2, lossless=True, max_new_tokens=24),
    ]
    chosen = [kinds[index % len(kinds)] for index in range(len(prompts))]
    drafts = {"": draft_of(small), "other": draft_of(foreseeing)}
    models = DraftModels(drafts.__getitem__, MAX_BLOCK_SIZE)
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    alone = [
        [
            outline(step)
            for step in steps_of(
                decode(
                    model, tokenizer, [prompt], partial(lambda now: now, now), draft_models=models
                )
            )
        ]
        for prompt, now in zip(prompts, chosen, strict=True)
    ]
    batch = CursorBatch(model, tokenizer, num_rows=3, capacity=64, draft_models=models)
    waiting = list(range(len(prompts)))
    found: dict[int, list[Any]] = {}
    while waiting or batch.rows:
        while waiting and len(batch.rows) < 3:
            number = waiting.pop(0)
            batch.add(number, prompts[number], partial(lambda now: now, chosen[number]))
            found[number] = []
        for step in batch.step().rows:
            found[step.row].append(outline(step))
    assert [found[number] for number in range(len(prompts))] == alone


def test_steering_from_and_to_it_changes_no_token(
    foreseeing: Checkpoint, small: Checkpoint
) -> None:
    """The draft model joins late, is exchanged for another, and has to catch up."""
    ways = [
        DecodeSettings("ar", max_new_tokens=60),
        replace(USUAL, max_new_tokens=60, draft="a"),
        DecodeSettings(tau=0.0, lossless=True, max_new_tokens=60),
        replace(USUAL, max_new_tokens=60, draft="b", block_size=9),
        replace(USUAL, max_new_tokens=60, draft="a", tau=0.0),
    ]
    drafts = {"a": draft_of(small), "b": draft_of(foreseeing)}
    models = DraftModels(drafts.__getitem__, MAX_BLOCK_SIZE)
    prompt = word_prompts(foreseeing, 1, seed=24)
    now = SimpleNamespace(settings=ways[0])
    events: list[Event] = []
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    for event in decode(model, tokenizer, prompt, lambda: now.settings, draft_models=models):
        events.append(event)
        now.settings = ways[len(events) // 3 % len(ways)]
    assert tokens_of(events) == plain(foreseeing, prompt, 60)
    assert len({step.settings for step in steps_of(events)}) == len(ways)


def test_a_good_draft_saves_forwards_of_the_target_and_masks_save_forwards_of_the_draft(
    foreseeing: Checkpoint, small: Checkpoint
) -> None:
    prompts = word_prompts(foreseeing, 8, seed=25)
    sums: dict[str, tuple[int, int]] = {}
    for masked in MASKED:
        now = replace(USUAL, masked=masked, block_size=8, tau=0.5, max_new_tokens=48)
        steps = [
            step
            for prompt in prompts
            for step in steps_of(run(foreseeing, foreseeing, [prompt], now))
        ]
        sums[masked] = len(steps), sum(step.num_draft_forwards for step in steps)
    num_tokens = sum(len(row) for row in plain(foreseeing, prompts, 48))
    assert sums["none"][0] < num_tokens / 3  # a draft like the target is nearly always right
    assert sums["draft"][1] < sums["none"][1]
    assert sums["target"][1] < sums["none"][1]


def test_a_target_without_masks_is_fed_none(foreseeing: Checkpoint) -> None:
    prompt = word_prompts(foreseeing, 1, seed=26)
    models = models_of(draft_of(foreseeing, 1), 1)
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    for step in decode(model, tokenizer, prompt, lambda: USUAL, draft_models=models):
        if isinstance(step, Step):
            (row,) = step.rows
            assert row.num_fed == row.num_pending
            assert row.num_draft_forwards == len(row.guessed)  # and the draft neither


@pytest.mark.parametrize("name", SAMPLED)
def test_on_bundled_checkpoints(name: str) -> None:
    target, draft = load(name), load("ar-tiny" if name == "mars-tiny" else "mars-tiny")
    models = models_of(draft_of(draft, draft.block_size), target.block_size)
    for index, prompt in enumerate(task_prompts(name, 8)):
        now = replace(USUAL, masked=MASKED[index % 4], groups="every", tau=LEVELS[index % 3])
        model, tokenizer = target.model, target.tokenizer
        events = decode(model, tokenizer, [prompt], lambda now=now: now, draft_models=models)
        assert tokens_of(events) == plain(target, [prompt], 24)
