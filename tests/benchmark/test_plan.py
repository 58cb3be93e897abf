"""Who is measured on what."""

from __future__ import annotations

import pytest

from mars_runtime.lab.benchmark import plan
from mars_runtime.settings import SettingsError

PROMPTS = {
    "symbolic": [[1, n] for n in range(6)],
    "reading": [[2, n] for n in range(6)],
    "natural": [[3, n] for n in range(6)],
}


def test_ar_comes_first_and_every_pair_of_tau_and_block_size_is_there():
    ways = plan.task_methods([0.95, 0.5], [2, 4], [0.0], [8], 64)
    fixed = [name for name in ways if not name.endswith("auto")]
    assert fixed == [
        *("AR", "MARS τ=0.95 B=2", "MARS τ=0.5 B=2", "MARS τ=0.95 B=4", "MARS τ=0.5 B=4"),
        "lossless τ=0 B=8",
    ]
    assert {way.max_new_tokens for way in ways.values()} == {64}
    with pytest.raises(SettingsError):
        plan.task_methods([2.0], [4], [], [], 64)


def test_single_prompts_keep_their_family():
    questions = plan.questions(PROMPTS, 1, 4, seed=0)
    assert [question.family for question in questions] == ["symbolic"] * 4 + ["reading"] * 4 + [
        "natural"
    ] * 4
    assert all(len(item.prompts) == 1 for item in questions)


@pytest.mark.parametrize("batch_size", [2, 3, 16])
def test_batches_mix_families_and_keep_natural_text_apart(batch_size: int):
    questions = plan.questions(PROMPTS, batch_size, 6, seed=0)
    assert {item.family for item in questions} == {plan.MIXED, "natural"}
    assert all(len(entry.prompts) == batch_size for entry in questions)
    mixed = [question for question in questions if question.family == plan.MIXED]
    assert len(mixed) == plan.MIN_BATCHES
    assert len(questions) == len(mixed) + 1
    assert {prompt[0] for value in mixed for prompt in value.prompts} == {1, 2}
    many = plan.questions(PROMPTS, batch_size, 18, seed=0)
    assert len([item for item in many if item.family == plan.MIXED]) == 6
    assert {prompt[0] for first in questions if first not in mixed for prompt in first.prompts} == {
        3
    }
    assert questions == plan.questions(PROMPTS, batch_size, 6, seed=0)


def test_without_natural_text_there_are_mixed_batches_alone():
    questions = plan.questions({"symbolic": PROMPTS["symbolic"]}, 4, 6, seed=0)
    assert {question.family for question in questions} == {plan.MIXED}


def test_caches_are_compared_only_where_they_ran():
    assert plan.comparisons(["AR"], None, "MARS") == []
    actual = plan.comparisons(["b", "no cache"], "b", "m")
    assert actual[-2:] == [("m", "b"), ("b", "no cache")]


def test_the_methods_of_requests_are_distinct_and_ar_comes_first():
    ways = plan.request_methods(32)
    assert next(iter(ways)) == "AR"
    assert {"AR + lookup", "lossless τ=0 B=auto groups", "MARS τ=0.95 B=4"} <= ways.keys()
    assert len(set(ways.values())) == len(ways) == 7
    assert {way.max_new_tokens for way in ways.values()} == {32}
    assert [name for name, way in ways.items() if way.lookup] == [
        "AR + lookup",
        "lossless τ=0 B=auto groups + lookup",
    ]


@pytest.mark.parametrize("name", [engine.name for engine in plan.ENGINES])
def test_every_method_of_this_runtime_is_compared_with_each_engine(name: str):
    engines = [engine.name for engine in plan.ENGINES]
    pairs = plan.comparisons(["AR", plan.GENERATE, *engines, "AR + lookup"])
    assert [pair for pair in pairs if name in pair] == [("AR", name), ("AR + lookup", name)]


def test_an_engine_that_did_not_run_is_not_compared():
    assert plan.comparisons(["AR", plan.LLAMA_CPP.name]) == [("AR", plan.LLAMA_CPP.name)]


def test_a_draft_is_fed_masks_only_if_it_knows_them_and_the_target_both_ways():
    ways = plan.speculative_methods({"small": False, "mars-tiny": True}, 32)
    assert list(ways) == [
        "speculative small K=4, no masks",
        "speculative small K=4, masks in target",
        "speculative mars-tiny K=4, no masks",
        "speculative mars-tiny K=4, masks in target",
        "speculative mars-tiny K=4, masks in draft",
        "speculative mars-tiny K=4, masks in both",
    ]
    assert {(way.tau, way.mask_layout, way.max_new_tokens) for way in ways.values()} == {
        (0.95, "every", 32)
    }
