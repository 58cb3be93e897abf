"""Law 12: with a repetition penalty greedy output is that of transformers with the same penalty,
and lossless output, whoever drafts and in whatever company, is that of AR with it.

Held on real weights, fp32 on a CPU; the native reader against the plain one on the same logits.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from helpers import Ids, ScriptedModel, peaked, steps_of, tokens_of
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
from native_models import LLAMA, MASK_ID, native_model
from test_laws import GRID, check_law_3
from test_laws_speculative import check_same_steps
from test_laws_speculative import run as speculate

from mars_runtime import acceptance
from mars_runtime.acceptance import NEVER, Draw, Penalty
from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.base import decode_on
from mars_runtime.decoders.baselines import BATCH_METHODS, decode_batch
from mars_runtime.decoders.drafting import basis_of
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.model.forward import MaskGroup, SamplingMetadata
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import GROUPS, METRICS, DecodeSettings, SettingsError
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")

PENALTY: dict[str, Any] = {"repetition_penalty": 1.3}
NONE = torch.empty(0, dtype=torch.long)
COSTS = ForwardCosts(8, {1: (1.0, 1.05, 1.1, 1.2, 1.3), 4: (1.0, 1.05, 1.1, 1.2, 1.3)})


def test_what_is_held_against_tokens_by_hand() -> None:
    """Of tokens that stand in the text a logit above 0 is divided, any other multiplied, once."""
    penalty = Penalty.of(DecodeSettings(repetition_penalty=2.0), [2, 0, 2], 0, [1, 3], 4)
    assert penalty is not None
    assert penalty.first_at is not None
    assert penalty.first_at.tolist() == [1, NEVER, 0, NEVER]
    table = torch.tensor([[[3.0, 1.0, -1.0, 0.0]] * 2])
    acceptance.penalise(table, [penalty])
    assert table.tolist() == [[[3.0, 1.0, -2.0, 0.0], [1.5, 1.0, -2.0, 0.0]]]
    assert Penalty.of(DecodeSettings(), [2, 0, 2], 0, [1, 3], 4) is None


def test_logits_are_those_of_transformers_processor() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    generator = torch.Generator().manual_seed(4)
    table = torch.randn(1, 6, 50, generator=generator) * 5
    text = torch.randint(0, 50, (40,), generator=generator).tolist()
    known = [0, 1, 7, 7, 30, 40]
    penalty = Penalty.of(DecodeSettings(repetition_penalty=1.37), text, 0, known, 50)
    assert penalty is not None
    assert penalty.first_at is not None
    found = table.clone()
    acceptance.penalise(found, [penalty])
    theirs = RepetitionPenaltyLogitsProcessor(1.37)
    for slot, count in enumerate(known):
        ids = torch.tensor([text[:count]], dtype=torch.long)
        assert torch.equal(found[0, slot], theirs(ids, table[:, slot].clone())[0])


@pytest.mark.parametrize("name", SAMPLED)
def test_greedy_output_is_that_of_transformers(name: str) -> None:
    check_greedy(name, task_prompts(name, 40)[::7])


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_greedy_output_is_that_of_transformers_on_more(name: str) -> None:
    check_greedy(name, task_prompts(name, 40))


def check_greedy(name: str, prompts: Sequence[Sequence[int]]) -> None:
    checkpoint = load(name)
    ours = [plain(checkpoint, [prompt], 24, **PENALTY)[0] for prompt in prompts]
    assert ours == transformers_greedy(checkpoint, prompts, 24, **PENALTY)
    assert ours != [plain(checkpoint, [prompt], 24)[0] for prompt in prompts]


def test_lossless_output_is_that_of_ar(small: Checkpoint, foreseeing: Checkpoint) -> None:
    check_law_3(small, word_prompts(small, 27), 20, **PENALTY)
    assert check_law_3(foreseeing, word_prompts(foreseeing, 27), 32, **PENALTY) > 1.05


@pytest.mark.parametrize("name", SAMPLED)
def test_lossless_output_on_a_bundled_checkpoint(name: str) -> None:
    assert check_law_3(load(name), task_prompts(name, 9), 32, **PENALTY) > 1.02


@pytest.mark.parametrize("lookup", [False, True])
def test_lossless_batches_of_any_order(small: Checkpoint, lookup: bool) -> None:
    """A row beside one without a penalty and one of another is what it is alone."""
    prompts = word_prompts(small, 6, seed=11)
    penalties = [1.0, 1.1, 1.6] * 2
    for (tau, block_size), groups in itertools.product(GRID[::2], GROUPS):
        ways = [
            DecodeSettings(
                tau=tau,
                block_size=block_size,
                lossless=True,
                groups=groups,
                lookup=lookup,
                max_new_tokens=20,
                repetition_penalty=each,
            )
            for each in penalties
        ]
        batch = CursorBatch(small.model, small.tokenizer, 6, 80)
        for number in reversed(range(6)):
            batch.add(number, prompts[number], partial(ways.__getitem__, number))
        found: dict[int, list[int]] = {number: [] for number in range(6)}
        while batch.rows:
            for row in batch.step().rows:
                found[row.row] += row.accepted
        for number, each in enumerate(penalties):
            wanted = plain(small, [prompts[number]], 20, repetition_penalty=each)
            assert [found[number]] == wanted, ways[number]


def test_where_b_is_chosen_by_itself(foreseeing: Checkpoint) -> None:
    now = DecodeSettings(
        tau=0.0, block_size="auto", lossless=True, groups="every", lookup=True, max_new_tokens=40,
        **PENALTY,
    )  # fmt: skip
    prompts = word_prompts(foreseeing, 4, seed=13)
    batch = CursorBatch(foreseeing.model, foreseeing.tokenizer, 4, 100, COSTS)
    events = list(decode_on(batch, prompts, lambda: now))
    assert tokens_of(events, 4) == plain(foreseeing, prompts, 40, **PENALTY)
    assert any(step.drafts for row in range(4) for step in steps_of(events, row))


def test_at_a_temperature(small: Checkpoint) -> None:
    changes: dict[str, Any] = {"temperature": 0.8, "seed": 3, "top_p": 0.9, **PENALTY}
    for prompt in word_prompts(small, 9):
        now = DecodeSettings(tau=0.0, block_size=4, lossless=True, max_new_tokens=24, **changes)
        assert tokens_of(run(small, [prompt], now)) == plain(small, [prompt], 24, **changes)


def test_jacobi_and_speculative_output_is_that_of_ar(
    foreseeing: Checkpoint, small: Checkpoint
) -> None:
    for index, prompt in enumerate(word_prompts(foreseeing, 8, seed=21)):
        wanted = plain(foreseeing, [prompt], 24, **PENALTY)
        size = (1, 3, 8, 16)[index % 4]
        jacobi = DecodeSettings("jacobi", block_size=size, max_new_tokens=24, **PENALTY)
        assert tokens_of(run(foreseeing, [prompt], jacobi)) == wanted
        other = replace(jacobi, method="speculative", tau=0.5, groups=GROUPS[index % 2])
        assert tokens_of(speculate(foreseeing, small, [prompt], other)) == wanted


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("groups", GROUPS)
def test_cached_equals_full_recomputation(
    foreseeing: Checkpoint, groups: Any, lossless: bool
) -> None:
    """Each mask goes by the text before its group, each verified slot by the drafts before it."""
    prompts = word_prompts(foreseeing, 4, seed=5)
    now = DecodeSettings(
        tau=0.4, block_size=5, lossless=lossless, groups=groups, lookup=True, max_new_tokens=24,
        threshold="agreement", **PENALTY,
    )  # fmt: skip
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    cached = decode(model, tokenizer, prompts, lambda: now)
    slow = slow_twin.decode(model, tokenizer, prompts, lambda: now)
    check_same_steps(cached, slow, len(prompts))


@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_every_way_of_a_batch_writes_the_same(foreseeing: Checkpoint, tau: float) -> None:
    """At τ = 1 blocks end elsewhere but AR's token leaves alone; else the two ways that have no
    blocks agree."""
    prompts = word_prompts(foreseeing, 3, seed=8)
    now = DecodeSettings(tau=tau, block_size=3, max_new_tokens=20, metric="margin", **PENALTY)
    found = {
        method: tokens_of(
            decode_batch(foreseeing.model, foreseeing.tokenizer, prompts, method, lambda: now, 3), 3
        )
        for method in BATCH_METHODS
    }
    assert found["uncached"] == found["cursor"]
    if tau == 1:
        assert found["block"] == found["ar"] == found["cursor"]


def test_what_ar_would_have_chosen_is_penalised_too(foreseeing: Checkpoint) -> None:
    now = DecodeSettings(tau=0.0, block_size=6, max_new_tokens=24, **PENALTY)
    num_checked = 0
    for prompt in word_prompts(foreseeing, 4, seed=9):
        batch = CursorBatch(foreseeing.model, foreseeing.tokenizer, 1, 80)
        batch.add(0, prompt, lambda: now)
        text = list(prompt)
        while batch.rows:
            (step,) = batch.checked(batch.step(), [0]).rows
            for place, (token, _) in enumerate(step.checks, step.start - len(step.checks)):
                before = text[: len(prompt) + place]
                assert plain(foreseeing, [before], 1, **PENALTY) == [[token]]
                num_checked += 1
            text += step.accepted
    assert num_checked > 10


# The native reader.


def ids_of(count: int) -> torch.Tensor:
    return torch.randint(5, 140, (1, count), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", ["llama", "untied"])
@pytest.mark.parametrize("metric", METRICS)
def test_native_readings_are_those_of_the_penalised_logits(name: str, metric: Any) -> None:
    model = native_model(name)
    size = model.config.vocab_size
    hidden = model.hidden(ids_of(24).view(3, 8), model.new_cache(3, 16))
    logits = model.logits(hidden, slice(0, 8))
    best = logits.argmax(-1).flatten().tolist()  # so that the penalty changes what is chosen
    now = DecodeSettings(repetition_penalty=1.5)
    penalties = [
        Penalty.of(
            now, best, 0, [0, 1, 4, 4, 9, 20, 24], size
        ),  # of the last slot nothing is known
        None,
        Penalty.of(replace(now, repetition_penalty=1.1), best[:9], 0, range(8), size),
    ]
    forbidden, metrics = torch.tensor([0, MASK_ID]), [metric] * 3
    for draws in ((), [None, Draw(0.7, 5, range(8)), Draw(0.7, 5, range(8))]):
        plain = SamplingMetadata(forbidden, metrics, draws)
        held = replace(plain, penalties=penalties)
        found, wanted = model.read(hidden, slice(0, 8), held), held.read(logits)
        assert found != model.read(hidden, slice(0, 8), plain)
        for ours, theirs in zip(found, wanted, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one.token == other.token
                assert one.confidence == pytest.approx(other.confidence, abs=1e-5)
                assert [each for each, _ in one.runners_up] == [
                    each for each, _ in other.runners_up
                ]


def test_candidates_are_ranked_as_the_penalty_left_them() -> None:
    """A sampler head chooses among the four that are best after the penalty."""
    model = native_model("llama", 8, has_adapter=True, sampler_width=32)
    fed = torch.tensor([[70, 9, MASK_ID, MASK_ID, MASK_ID]])
    hidden, forbidden = model.hidden(fed, model.new_cache(1, 8)), torch.tensor([0, MASK_ID])
    groups = [MaskGroup(0, 1, range(2, 5))]

    def read(penalty: Penalty | None, among: Sequence[MaskGroup]) -> Any:
        sampling = SamplingMetadata(forbidden, ["probability"], (), among, [penalty])
        return model.read(hidden, slice(0, 5), sampling)[0]

    loved = [slot.token for slot in read(None, ())]
    now = DecodeSettings(repetition_penalty=2.0)
    penalty = Penalty.of(now, loved, 0, [len(loved)] * 5, LLAMA.vocab_size)
    plainly, ranked = read(penalty, ()), read(penalty, groups)
    for one, other in zip(plainly, ranked, strict=True):
        mine = {one.token, *(token for token, _ in one.runners_up)}
        assert mine == {other.token, *(token for token, _ in other.runners_up)}
    assert plainly[:2] == ranked[:2]
    assert plainly[2:] != ranked[2:]
    assert [slot.token for slot in plainly] != loved


@pytest.mark.parametrize("groups", GROUPS)
def test_native_lossless_output_is_that_of_ar_to_the_bit(groups: Any) -> None:
    model, ids = native_model("llama", 8, has_adapter=True, sampler_width=32), Ids(mask_id=MASK_ID)
    now = DecodeSettings(
        tau=0.0, block_size=4, lossless=True, groups=groups, lookup=True, max_new_tokens=24,
        **PENALTY,
    )  # fmt: skip
    plainly = DecodeSettings("ar", max_new_tokens=24, **PENALTY)
    for seed in range(4):
        prompt = ids_of(9 + seed)[0].tolist()
        found = tokens_of(decode(model, ids, [prompt], lambda: now))
        assert found == tokens_of(decode(model, ids, [prompt], lambda: plainly))


# What is kept apart and refused.


def test_drafting_lessons_are_kept_apart() -> None:
    one = DecodeSettings(lossless=True, block_size="auto")
    assert basis_of(one) != basis_of(replace(one, **PENALTY))


def test_block_diffusion_refuses_it_in_a_sentence() -> None:
    with pytest.raises(
        SettingsError, match=r"^The repetition penalty does not work with block diffusion: "
    ):
        DecodeSettings("block_diffusion", **PENALTY)


def test_the_prompt_counts_and_each_token_once() -> None:
    """3 is at 6.03, halved at 3.015, halved twice below the 2.15 of 15; 3.15 is more than half."""

    def logits(prefix: tuple[int, ...]) -> list[float]:
        found = peaked(3)
        found[15] += 2.0
        return found

    now = DecodeSettings("ar", max_new_tokens=4, repetition_penalty=2.0)
    ids = Ids()
    assert tokens_of(decode(ScriptedModel(logits), ids, [[3, 3, 5]], lambda: now)) == [[3, 3, 3, 3]]

    def closer(prefix: tuple[int, ...]) -> list[float]:
        found = logits(prefix)
        found[15] += 1.0
        return found

    found = tokens_of(decode(ScriptedModel(closer), ids, [[3, 5]], lambda: now))
    assert found == [[15, 3, 3, 3]]
