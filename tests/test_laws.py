"""Laws 1 to 5 and 8 of decoding (design section 5), fp32 on a CPU, with real weights.

The weights are random, trained for seconds in a fixture, or bundled when they are there. The same
laws are held on scripted models in tests/decoders.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import steps_of, tokens_of, word_sequence

from mars_runtime import tasks
from mars_runtime.decoders import CursorBatch, ar, block, decode, reference
from mars_runtime.decoders.batch import BATCH_METHODS, decode_batch
from mars_runtime.events import Event, RowStep, Step
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.registry import REGISTRY
from mars_runtime.settings import METRICS, DecodeSettings

BUNDLED = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not (REGISTRY.parent / name / "config.json").exists(), reason=f"{name} is not bundled"
        ),
    )
    for name in ("ar-tiny", "mars-tiny")
]
GRID = [(tau, block_size) for tau in (0.0, 0.5, 0.95) for block_size in (2, 4, 8)]
NUM_PROMPTS = 108  # twelve for each cell of the grid


@cache
def load(name: str) -> Checkpoint:
    return load_checkpoint(name, device="cpu", dtype="fp32")


@cache
def task_prompts(name: str, count: int) -> tuple[tuple[int, ...], ...]:
    """Prompts of every family in turn, encoded for a checkpoint."""
    share = -(-count // len(tasks.FAMILIES))
    columns = [tasks.generate(family, "eval", 11, share) for family in tasks.FAMILIES]
    texts = [task.prompt for group in zip(*columns, strict=True) for task in group]
    encode = load(name).tokenizer.encode_prompt
    return tuple(tuple(encode(text)) for text in texts[:count])


def word_prompts(checkpoint: Checkpoint, count: int, seed: int = 0) -> list[list[int]]:
    """Beginnings of the language that the foreseeing checkpoint knows."""
    rng = random.Random(seed)
    eos = checkpoint.tokenizer.im_end_id
    rows = [word_sequence(rng, rng.choice((2, 7, 15, 26)), eos) for _ in range(4 * count)]
    return [row for row in rows if eos not in row][:count]


@pytest.fixture(scope="module", params=["random", "foreseeing"])
def small(request: pytest.FixtureRequest) -> Checkpoint:
    folder: Path = request.getfixturevalue(f"{request.param}_folder")
    return load(str(folder))


@pytest.fixture(scope="module")
def foreseeing(foreseeing_folder: Path) -> Checkpoint:
    return load(str(foreseeing_folder))


def run(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], settings: DecodeSettings
) -> list[Event]:
    return list(decode(checkpoint.model, checkpoint.tokenizer, prompts, lambda: settings))


def plain(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int, **changes: Any
) -> list[list[int]]:
    settings = DecodeSettings(max_new_tokens=limit, **changes)
    tokenizer = checkpoint.tokenizer
    events = ar.decode(checkpoint.model, tokenizer, prompts, lambda: settings)
    return tokens_of(events, len(prompts))


# Law 1: AR here equals transformers' greedy generate on the same weights, token for token.


def transformers_greedy(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int
) -> list[list[int]]:
    """Greedy generate with the same forbidden ids; prompts of one length share a batch."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32).eval()
    tokenizer, size = checkpoint.tokenizer, checkpoint.model.config.vocab_size
    never = sorted(tokenizer.forbidden_ids | set(range(tokenizer.size, size)))
    answers: dict[int, list[int]] = {}
    for length in {len(prompt) for prompt in prompts}:
        places = [place for place, prompt in enumerate(prompts) if len(prompt) == length]
        ids = torch.tensor([prompts[place] for place in places])
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                do_sample=False,
                suppress_tokens=never,
                eos_token_id=sorted(tokenizer.eos_ids),
                pad_token_id=tokenizer.pad_id,
            )
        for place, row in zip(places, out[:, length:].tolist(), strict=True):
            ends = [i for i, token in enumerate(row) if token in tokenizer.eos_ids]
            answers[place] = row[: ends[0] + 1] if ends else row
    return [answers[place] for place in range(len(prompts))]


def check_law_1(checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int) -> None:
    theirs = transformers_greedy(checkpoint, prompts, limit)
    ours = [plain(checkpoint, [prompt], limit)[0] for prompt in prompts]
    assert ours == theirs


def test_law_1_ar_equals_transformers(small: Checkpoint) -> None:
    check_law_1(small, word_prompts(small, 100), 16)


@pytest.mark.parametrize("name", BUNDLED)
def test_law_1_on_a_bundled_checkpoint(name: str) -> None:
    check_law_1(load(name), task_prompts(name, 102), 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_law_1_on_whole_answers(name: str) -> None:
    check_law_1(load(name), task_prompts(name, 102), 200)


# Law 2: the cursor cache changes nothing; a row of a ragged batch equals that row alone.


def outline(step: RowStep) -> tuple[object, ...]:
    """What a step decided, apart from how it was fed."""
    tokens = tuple(slot.token for slot in step.proposals)
    return step.start, tokens, step.accepted, step.num_drafted, step.stop


def confidences(steps: Sequence[RowStep]) -> list[float]:
    return [slot.confidence for step in steps for slot in step.proposals]


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 16])
def test_law_2_cached_equals_full_recomputation(
    small: Checkpoint, block_size: int, lossless: bool
) -> None:
    prompts = word_prompts(small, 4, seed=block_size)
    settings = DecodeSettings(tau=0.4, block_size=block_size, lossless=lossless, max_new_tokens=20)
    cached = run(small, prompts, settings)
    slow = list(reference.decode(small.model, small.tokenizer, prompts, lambda: settings))
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


# Law 3: lossless output equals AR output for every tau, B and metric.


def check_law_3(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int, **changes: Any
) -> float:
    """Each prompt meets one cell of tau x B and one metric; returns tokens per forward."""
    num_tokens = num_forwards = 0
    for index, prompt in enumerate(prompts):
        tau, block_size = GRID[index % len(GRID)]
        settings = DecodeSettings(
            tau=tau,
            block_size=block_size,
            lossless=True,
            metric=METRICS[index // len(GRID) % len(METRICS)],
            max_new_tokens=limit,
            **changes,
        )
        events = run(checkpoint, [prompt], settings)
        tokens = tokens_of(events)[0]
        assert tokens == plain(checkpoint, [prompt], limit, **changes)[0], settings
        num_tokens += len(tokens)
        num_forwards += len(steps_of(events))
    return num_tokens / num_forwards


def test_law_3_lossless_equals_ar(small: Checkpoint) -> None:
    check_law_3(small, word_prompts(small, NUM_PROMPTS), 20)


def test_law_3_is_not_held_by_drafting_nothing(foreseeing: Checkpoint) -> None:
    assert check_law_3(foreseeing, word_prompts(foreseeing, 27), 32) > 1.3


def test_law_3_at_a_temperature(small: Checkpoint) -> None:
    check_law_3(small, word_prompts(small, 27), 24, temperature=0.8, seed=3)


def test_law_3_every_cell_and_metric_on_one_prompt(foreseeing: Checkpoint) -> None:
    prompt = word_prompts(foreseeing, 1, seed=5)
    wanted = plain(foreseeing, prompt, 24)
    for tau, block_size in GRID:
        for metric in METRICS:
            settings = DecodeSettings(
                tau=tau, block_size=block_size, metric=metric, lossless=True, max_new_tokens=24
            )
            assert tokens_of(run(foreseeing, prompt, settings)) == wanted


@pytest.mark.parametrize("name", BUNDLED)
def test_law_3_on_a_bundled_checkpoint(name: str) -> None:
    check_law_3(load(name), task_prompts(name, NUM_PROMPTS), 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_law_3_on_whole_answers(name: str) -> None:
    check_law_3(load(name), task_prompts(name, NUM_PROMPTS), 200)


# Law 4: the first token of a step is AR's; 1 to B a step; nothing after the end, nothing forbidden.


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("block_size", [1, 3, 8])
def test_law_4_every_step(small: Checkpoint, block_size: int, temperature: float) -> None:
    tokenizer = small.tokenizer
    settings = DecodeSettings(
        tau=0.3, block_size=block_size, max_new_tokens=20, temperature=temperature, seed=6
    )
    for prompt in word_prompts(small, 6, seed=6):
        tokens = list(prompt)
        steps = steps_of(run(small, [prompt], settings))
        for step in steps:
            assert 1 <= len(step.accepted) <= block_size
            first = plain(small, [tokens], 1, temperature=temperature, seed=6)
            assert first == [[step.accepted[0]]]
            tokens += step.accepted
        new = tokens[len(prompt) :]
        assert len(new) <= 20
        assert not tokenizer.eos_ids & set(new[:-1])
        assert not tokenizer.forbidden_ids & set(new)
        assert max(new) < tokenizer.size
        assert steps[-1].stop == ("eos" if new[-1] in tokenizer.eos_ids else "limit")


# Law 5: changing settings in mid-run touches only later steps.


@pytest.mark.parametrize("change_at", [0, 1, 4])
def test_law_5_a_change_touches_only_later_steps(foreseeing: Checkpoint, change_at: int) -> None:
    first = DecodeSettings(tau=0.9, block_size=4, max_new_tokens=30)
    then = DecodeSettings(tau=0.0, block_size=8, max_new_tokens=30)
    prompt = word_prompts(foreseeing, 1, seed=9)
    whole = steps_of(run(foreseeing, prompt, first))
    now = SimpleNamespace(settings=first)
    steps: list[RowStep] = []
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    for event in decode(model, tokenizer, prompt, lambda: now.settings):
        if isinstance(event, Step):
            steps += event.rows
        if len(steps) == change_at:
            now.settings = then
    assert steps[:change_at] == whole[:change_at]
    assert all(step.settings is then for step in steps[change_at:])
    assert len(steps[change_at].proposals) == 8
    assert len(steps[change_at].accepted) == 8 or steps[change_at].stop == "eos"


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
    by_block = list(block.decode(model, tokenizer, prompts, lambda: settings, 7))
    others = [
        list(decoder(model, tokenizer, prompts, lambda: settings))
        for decoder in (decode, reference.decode)
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


@pytest.mark.parametrize("name", BUNDLED)
def test_law_8_on_a_bundled_checkpoint(name: str) -> None:
    check_law_8(load(name), task_prompts(name, 4))


def test_law_8_a_row_of_a_block_batch_equals_the_row_alone(foreseeing: Checkpoint) -> None:
    prompts = word_prompts(foreseeing, 6, seed=4)
    for method in ("block", "uncached"):
        together = batch_tokens(foreseeing, method, prompts, tau=0.4)
        assert together == [
            batch_tokens(foreseeing, method, [prompt], tau=0.4)[0] for prompt in prompts
        ]
