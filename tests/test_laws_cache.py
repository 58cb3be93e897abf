"""Laws 2 and 8 of decoding (design section 5): caches and company change nothing. fp32 on a CPU.

On the weights of test_laws.py.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from helpers import steps_of, tokens_of
from law_checkpoints import SAMPLED, load, run, task_prompts, word_prompts

from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.baselines import BATCH_METHODS, decode_batch
from mars_runtime.events import RowStep
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import DecodeSettings
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")

# Law 2: the cursor cache changes nothing; a row of a ragged batch equals that row alone.


def outline(step: RowStep) -> tuple[object, ...]:
    """What a step decided, apart from how it was fed."""
    tokens = tuple(slot.token for slot in step.proposals)
    return step.start, tokens, step.accepted, step.drafts, step.groups, step.stop


def confidences(steps: Sequence[RowStep]) -> list[float]:
    return [slot.confidence for step in steps for slot in step.proposals]


KINDS: dict[str, dict[str, Any]] = {
    "unverified": {},
    "lossless": {"lossless": True},
    "every": {"lossless": True, "groups": "every"},
    "jacobi": {"method": "jacobi"},
    "by entropy": {"threshold": "entropy", "tau": 0.1},
    "by agreement": {"threshold": "agreement", "tau": 0.1, "target": 0.8},
    "every and lookup": {"lossless": True, "groups": "every", "lookup": True, "tau": 0.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 16])
def test_law_2_cached_equals_full_recomputation(
    small: Checkpoint, block_size: int, kind: str
) -> None:
    prompts = word_prompts(small, 4, seed=block_size)
    settings = DecodeSettings(tau=0.4, block_size=block_size, max_new_tokens=20)
    settings = replace(settings, **KINDS[kind])
    cached = run(small, prompts, settings)
    slow = list(slow_twin.decode(small.model, small.tokenizer, prompts, lambda: settings))
    for row in range(len(prompts)):
        ours, theirs = steps_of(cached, row), steps_of(slow, row)
        assert [outline(step) for step in ours] == [outline(step) for step in theirs]
        assert confidences(ours) == pytest.approx(confidences(theirs), abs=1e-4)


def test_law_2_a_row_equals_the_row_alone_in_any_order(small: Checkpoint) -> None:
    rng = random.Random(1)
    prompts = word_prompts(small, 6)
    for block_size in (1, 2, 4, 7):
        settings = DecodeSettings(tau=0.3, block_size=block_size, max_new_tokens=18)
        alone = [steps_of(run(small, [prompt], settings)) for prompt in prompts]
        order = rng.sample(range(6), 6)
        together = run(small, [prompts[i] for i in order], settings)
        for place, index in enumerate(order):
            steps = steps_of(together, place)
            assert [outline(step) for step in steps] == [outline(step) for step in alone[index]]


def test_law_2_rows_join_and_leave_with_their_own_settings(foreseeing: Checkpoint) -> None:
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    prompts = word_prompts(foreseeing, 9, seed=3)
    base = DecodeSettings(tau=0.4, max_new_tokens=24, block_size=8)
    kinds = [
        base,
        replace(base, method="ar"),
        replace(base, lossless=True, tau=0.0),
        replace(base, lossless=True, tau=0.2, groups="every", lookup=True),
        replace(base, metric="entropy", block_size=3),
        replace(base, lossless=True, metric="margin", temperature=0.7, seed=4),
        replace(base, temperature=1.0, seed=5, max_new_tokens=7),
    ]
    chosen = [kinds[i % len(kinds)] for i in range(len(prompts))]
    alone = [
        tokens_of(run(foreseeing, [prompt], settings))[0]
        for prompt, settings in zip(prompts, chosen, strict=True)
    ]
    batch = CursorBatch(model, tokenizer, num_rows=3, capacity=64)
    waiting, found, cancelled = list(range(len(prompts))), {}, 4
    while waiting or batch.rows:
        while waiting and len(batch.rows) < 3:
            number = waiting.pop(0)
            batch.add(number, prompts[number], lambda settings=chosen[number]: settings)
            found[number] = []
        for step in batch.step().rows:
            found[step.row] += step.accepted
        if cancelled in batch.rows and len(found[cancelled]) > 5:
            batch.drop(cancelled)
    found[cancelled] = found[cancelled] + alone[cancelled][len(found[cancelled]) :]
    assert [found[number] for number in range(len(prompts))] == alone


def test_law_2_needle_the_rows_never_see_each_other(foreseeing: Checkpoint) -> None:
    """The same prompt beside any neighbours gives the same confidences."""
    prompts = word_prompts(foreseeing, 8, seed=8)
    settings = DecodeSettings(tau=0.4, max_new_tokens=16)
    alone = confidences(steps_of(run(foreseeing, prompts[:1], settings)))
    for count in (2, 5, 8):
        beside = run(foreseeing, prompts[1:count] + prompts[:1], settings)
        found = confidences(steps_of(beside, count - 1))
        assert found == pytest.approx(alone, abs=1e-4)


# Law 8: the block decoder, the cursor decoder and full recomputation propose the same tokens when
# tau lets only one through. All other rows of a block batch change nothing in a row either.


def batch_tokens(
    checkpoint: Checkpoint, method: Any, prompts: Sequence[Sequence[int]], **changes: Any
) -> list[list[int]]:
    settings = DecodeSettings(max_new_tokens=24, **changes)
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    events = decode_batch(model, tokenizer, prompts, method, lambda: settings, 4, cache_block=7)
    return tokens_of(events, len(prompts))


def check_law_8(checkpoint: Checkpoint, prompts: Sequence[Sequence[int]]) -> None:
    """Margin, because a probability can round to exactly 1 and let more through at tau = 1."""
    settings = DecodeSettings(tau=1.0, metric="margin", block_size=6, max_new_tokens=24)
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    size = len(prompts)
    by_block = list(
        decode_batch(model, tokenizer, prompts, "block", lambda: settings, size, cache_block=7)
    )
    others = [
        list(decoder(model, tokenizer, prompts, lambda: settings))
        for decoder in (decode, slow_twin.decode)
    ]
    for row in range(len(prompts)):
        ours = steps_of(by_block, row)
        for events in others:
            theirs = steps_of(events, row)
            assert [step.accepted for step in ours] == [step.accepted for step in theirs]
            for one, other in zip(ours, theirs, strict=True):
                shared = min(len(one.proposals), len(other.proposals))
                tokens = [slot.token for slot in one.proposals[:shared]]
                assert tokens == [slot.token for slot in other.proposals[:shared]]
    wanted = tokens_of(by_block, len(prompts))
    for method in BATCH_METHODS:
        assert batch_tokens(checkpoint, method, prompts, tau=1.0, metric="margin") == wanted


def test_law_8_one_token_a_forward(small: Checkpoint) -> None:
    check_law_8(small, word_prompts(small, 6, seed=2))


@pytest.mark.parametrize("name", SAMPLED)
def test_law_8_on_a_bundled_checkpoint(name: str) -> None:
    check_law_8(load(name), task_prompts(name, 4))


def test_law_8_a_row_of_a_block_batch_equals_the_row_alone(foreseeing: Checkpoint) -> None:
    prompts = word_prompts(foreseeing, 6, seed=4)
    for method in ("block", "uncached"):
        together = batch_tokens(foreseeing, method, prompts, tau=0.4)
        assert together == [
            batch_tokens(foreseeing, method, [prompt], tau=0.4)[0] for prompt in prompts
        ]
