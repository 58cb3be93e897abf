"""Laws 1, 3, 4, 5 and 14 of decoding (design section 5), fp32 on a CPU, with real weights.

The weights are random, trained for seconds in a fixture, or bundled when they are there. Laws 2 and
8 are in test_laws_cache.py; the same laws are held on scripted models in tests/decoders.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import steps_of, tokens_of
from law_checkpoints import (
    BUNDLED,
    SAMPLED,
    load,
    plain,
    run,
    task_prompts,
    transformers_greedy,
    word_prompts,
)

from mars_runtime.decoders import decode
from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.events import RowStep, Step
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import GROUPS, METRICS, DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

GRID = [(tau, block_size) for tau in (0.0, 0.5, 0.95) for block_size in (2, 4, 8)]
NUM_PROMPTS = 108  # twelve for each cell of the grid

# Law 1: AR here equals transformers' greedy generate on the same weights, token for token.


# On quickly trained weights all of it; on bundled ones a sample of beginnings, three of each family
# of tasks. As slow tests random weights, all prompts, whole answers, and ar-tiny.
NUM_SAMPLED = 18


def check_law_1(checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int) -> None:
    theirs = transformers_greedy(checkpoint, prompts, limit)
    ours = [plain(checkpoint, [prompt], limit)[0] for prompt in prompts]
    assert ours == theirs


def test_law_1_ar_equals_transformers(small: Checkpoint) -> None:
    check_law_1(small, word_prompts(small, 100), 16)


@pytest.mark.parametrize("name", SAMPLED)
def test_law_1_on_a_bundled_checkpoint(name: str) -> None:
    check_law_1(load(name), task_prompts(name, NUM_SAMPLED), 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_law_1_on_whole_answers(name: str) -> None:
    check_law_1(load(name), task_prompts(name, 102), 200)


# Law 3: lossless output equals AR output for every tau, B and metric.


def check_law_3(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int, **changes: Any
) -> float:
    """Each prompt meets one cell of tau x B, one metric, and one way to draft; returns tokens per
    forward."""
    num_tokens = num_forwards = 0
    for index, prompt in enumerate(prompts):
        tau, block_size = GRID[index % len(GRID)]
        settings = DecodeSettings(
            tau=tau,
            block_size=block_size,
            lossless=True,
            metric=METRICS[index // len(GRID) % len(METRICS)],
            groups=GROUPS[index % len(GROUPS)],
            lookup=index // len(GROUPS) % 2 == 1,
            max_new_tokens=limit,
            **changes,
        )
        events = run(checkpoint, [prompt], settings)
        tokens = tokens_of(events)[0]
        assert tokens == plain(checkpoint, [prompt], limit, **changes)[0], settings
        num_tokens += len(tokens)
        num_forwards += len(steps_of(events))
    return num_tokens / num_forwards


@pytest.mark.parametrize(
    "count", [NUM_PROMPTS // 2, pytest.param(NUM_PROMPTS, marks=pytest.mark.slow)]
)
def test_law_3_lossless_equals_ar(small: Checkpoint, count: int) -> None:
    check_law_3(small, word_prompts(small, count), 20)


def test_law_3_is_not_held_by_drafting_nothing(foreseeing: Checkpoint) -> None:
    assert check_law_3(foreseeing, word_prompts(foreseeing, 27), 32) > 1.3


def test_law_3_at_a_temperature(small: Checkpoint) -> None:
    check_law_3(small, word_prompts(small, 27), 24, temperature=0.8, seed=3)


def test_law_3_every_cell_and_metric_on_one_prompt(foreseeing: Checkpoint) -> None:
    prompt = word_prompts(foreseeing, 1, seed=5)
    wanted = plain(foreseeing, prompt, 24)
    ways = itertools.product(GRID, METRICS, GROUPS, (False, True))
    for (tau, block_size), metric, groups, lookup in ways:
        settings = DecodeSettings(
            tau=tau,
            block_size=block_size,
            metric=metric,
            lossless=True,
            groups=groups,
            lookup=lookup,
            max_new_tokens=24,
        )
        assert tokens_of(run(foreseeing, prompt, settings)) == wanted


@pytest.mark.parametrize("lookup", [False, True])
def test_law_3_in_a_batch_of_any_order(small: Checkpoint, lookup: bool) -> None:
    prompts = word_prompts(small, 7, seed=11)
    wanted = plain(small, prompts, 24)
    for tau, block_size in GRID:
        settings = DecodeSettings(
            tau=tau,
            block_size=block_size,
            lossless=True,
            groups="every",
            lookup=lookup,
            max_new_tokens=24,
        )
        found = tokens_of(run(small, prompts[::-1], settings), len(prompts))
        assert found[::-1] == wanted


def test_groups_and_lookup_give_more_tokens_per_forward(foreseeing: Checkpoint) -> None:
    prompts = word_prompts(foreseeing, 12, seed=12)
    bold = DecodeSettings(tau=0.0, block_size=4, lossless=True, max_new_tokens=60)
    ways = {"one": bold, "every": replace(bold, groups="every")}
    ways["both"] = replace(ways["every"], lookup=True)
    forwards = {
        name: sum(len(steps_of(run(foreseeing, [prompt], way))) for prompt in prompts)
        for name, way in ways.items()
    }
    assert forwards["both"] < forwards["every"] < forwards["one"]


@pytest.mark.parametrize("name", SAMPLED)
def test_law_3_on_a_bundled_checkpoint(name: str) -> None:
    check_law_3(load(name), task_prompts(name, NUM_SAMPLED), 32)


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


# Law 14: with fewest passes as the objective, auto takes the same passes on every machine.

FEWEST = DecodeSettings(tau=0.0, block_size="auto", aim="passes", max_new_tokens=40)
WAYS = {
    "unverified": FEWEST,
    "lossless": replace(FEWEST, lossless=True),
    "groups and lookup": replace(FEWEST, lossless=True, groups="every", lookup=True),
}
PRICES = {"cheap": 0.01, "dear": 0.6, "free": 0.0}
"""What each further token adds to a forward of one token, on three machines."""


def costs_of(price: float, num_threads: int = 2) -> ForwardCosts:
    """The costs of a machine of two threads, of which ``num_threads`` are in force."""
    two = {1: tuple(1.0 + price * more for more in range(32))}
    one = ForwardCosts(8, {1: tuple(1.0 + 2 * price * more for more in range(32))}, seconds=0.02)
    return ForwardCosts(8, two, seconds=0.01, fewer={1: one}, in_force=lambda: num_threads)


def fed(steps: Sequence[RowStep]) -> list[tuple[object, ...]]:
    """What each forward fed and accepted."""
    return [(step.num_pending, step.num_fed, step.groups, step.accepted) for step in steps]


@pytest.mark.parametrize("way", WAYS)
def test_law_14_passes_do_not_depend_on_the_machine(foreseeing: Checkpoint, way: str) -> None:
    """Neither on its costs or threads, nor on how busy it was, nor on what ran before."""
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    by_time: list[set[str]] = []
    for prompt in word_prompts(foreseeing, 6, seed=14):
        found: list[list[tuple[object, ...]]] = []
        for price, num_threads in product(PRICES.values(), (1, 2)):
            costs = costs_of(price, num_threads)
            for settings in (WAYS[way], WAYS[way]):  # the second run could learn from the first
                asked = partial(replace, settings)
                events = list(decode(model, tokenizer, [prompt], asked, costs))
                found.append(fed(steps_of(events)))
                costs.took(1, 0, 0.2)  # another process takes the machine
                costs.took(9, 4, 0.9)
        assert all(each == found[0] for each in found)
        timed = partial(replace, WAYS[way], aim="time")
        events = [
            list(decode(model, tokenizer, [prompt], timed, costs_of(price)))
            for price in PRICES.values()
        ]
        by_time.append({str(fed(steps_of(each))) for each in events})
    assert any(len(each) > 1 for each in by_time)  # by time they do


@pytest.mark.parametrize("way", WAYS)
def test_law_14_passes_do_not_depend_on_other_rows(foreseeing: Checkpoint, way: str) -> None:
    one, *others = word_prompts(foreseeing, 3, seed=15)
    settings = WAYS[way]
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    alone = decode(model, tokenizer, [one], lambda: settings, costs_of(0.1))
    wanted = fed(steps_of(list(alone)))
    batch = CursorBatch(model, tokenizer, 3, 128, costs_of(0.3))
    for number, prompt in enumerate((one, *others)):
        aim = "passes" if number == 0 else "time"
        batch.add(number, prompt, partial(replace, settings, aim=aim))
    steps: list[RowStep] = []
    while 0 in batch.rows:
        steps += [row for row in batch.step().rows if row.row == 0]
    assert fed(steps) == wanted
