"""Sampling: lossless decoding draws AR's sample. Noise is keyed by (seed, position), so a draft is
compared with the very token that AR draws there. Over seeds all methods follow the model's
distribution, which a vocabulary this small lets the test enumerate."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
from helpers import Ids, ScriptedModel
from hypothesis import given
from hypothesis import strategies as st
from law_checkpoints import plain, word_prompts

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.model.load import Checkpoint
from mars_runtime.model.predictions import filtered
from mars_runtime.settings import DecodeSettings

MASK, FIRST = 1, 3
IDS = Ids(size=7, eos_ids=frozenset({2}))  # five tokens can come out: the end and four others
TOKENS = (2, 3, 4, 5, 6)
LENGTH, NUM_SEEDS = 3, 600
HOT = DecodeSettings(
    tau=0.0, block_size=4, lossless=True, max_new_tokens=LENGTH, temperature=0.7, top_p=1.0
)
WAYS = {
    "ar": replace(HOT, method="ar"),
    "masks": HOT,
    "every mask and lookup": replace(HOT, mask_layout="every", lookup=True),
    "timid masks": replace(HOT, tau=0.3),
    "jacobi": replace(HOT, method="jacobi"),
}


def logits_after(prefix: tuple[int, ...]) -> list[float]:
    """Of every prefix others; masks say something like what the text would."""
    seed = sum((place + 1) * token for place, token in enumerate(prefix[-3:]))
    return [math.sin(1.7 * seed + 2.3 * token) * 1.5 for token in range(18)]


class Draws(NamedTuple):
    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


def probabilities(prefix: tuple[int, ...], draws: Draws) -> dict[int, float]:
    """What AR draws from after a prefix, worked out without a tensor."""
    logits = logits_after(prefix)
    weights = {token: math.exp(logits[token] / draws.temperature) for token in TOKENS}
    ranked = sorted(weights.items(), key=lambda pair: -pair[1])
    ranked = ranked[: draws.top_k] if draws.top_k > 0 else ranked
    total = sum(weight for _, weight in ranked)
    kept, reached = dict[int, float](), 0.0
    for token, weight in ranked:
        if reached < draws.top_p and weight >= draws.min_p * ranked[0][1]:
            kept[token] = weight
        reached += weight / total
    return {token: weight / sum(kept.values()) for token, weight in kept.items()}


@cache
def expected(draws: Draws) -> dict[tuple[int, ...], float]:
    """The probability of every output of LENGTH tokens, or fewer where it ends."""
    collected: dict[tuple[int, ...], float] = {}
    begun: dict[tuple[int, ...], float] = {(): 1.0}
    for length in range(1, LENGTH + 1):
        longer: dict[tuple[int, ...], float] = {}
        for output, chance in begun.items():
            for token, share in probabilities((FIRST, *output), draws).items():
                is_over = token == 2 or length == LENGTH
                (collected if is_over else longer)[(*output, token)] = chance * share
        begun = longer
    assert sum(collected.values()) == pytest.approx(1.0)
    return collected


@cache
def drawn(way: str, draws: Draws) -> list[tuple[int, ...]]:
    settings = replace(WAYS[way], **draws._asdict())
    batch = CursorBatch(ScriptedModel(logits_after), IDS, NUM_SEEDS, 1 + LENGTH)
    for seed in range(NUM_SEEDS):
        seeded = replace(settings, seed=seed)
        batch.add(seed, [FIRST], lambda seeded=seeded: seeded)  # type: ignore[misc]
    outputs: dict[int, list[int]] = defaultdict(list)
    while batch.rows:
        for step in batch.step().rows:
            outputs[step.row] += step.accepted
    return [tuple(outputs[seed]) for seed in range(NUM_SEEDS)]


CASES = [
    Draws(0.7), Draws(1.0), Draws(1.0, top_p=0.8), Draws(1.0, top_k=4), Draws(1.2, min_p=0.1),
    Draws(1.2, top_p=0.95, top_k=4, min_p=0.08), Draws(1.0, top_k=-1),
]  # fmt: skip


@pytest.mark.parametrize("draws", CASES)
def test_outputs_follow_the_enumerated_distribution(draws: Draws) -> None:
    """Chi-square over whole outputs, rare ones in one cell; the seeds are fixed, so it can't
    flicker. The bound is what chance exceeds once in ten thousand (Wilson and Hilferty)."""
    wanted, counts = expected(draws), Counter(drawn("ar", draws))
    assert all(wanted.get(output, 0.0) > 0 for output in counts)
    common = {output for output, chance in wanted.items() if chance * NUM_SEEDS >= 5}
    rare = 1.0 - sum(wanted[output] for output in common)
    cells = [(counts[output], NUM_SEEDS * wanted[output]) for output in sorted(common)]
    if rare * NUM_SEEDS >= 5:
        cells.append((NUM_SEEDS - sum(seen for seen, _ in cells), NUM_SEEDS * rare))
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    freedom = len(cells) - 1
    assert freedom >= 10
    spread = 2 / (9 * freedom)
    assert statistic < freedom * (1 - spread + 3.72 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize("draws", CASES)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "ar"])
def test_every_way_of_drafting_draws_ar_sample(way: str, draws: Draws) -> None:
    assert drawn(way, draws) == drawn("ar", draws)


FILTERS = st.tuples(
    st.sampled_from([-1, 0, 1, 2, 5, 11, 12, 2**31 - 1]),
    st.sampled_from([1.0, 0.999, 0.7, 0.3]),
    st.sampled_from([0.0, 1e-4, 0.05, 0.4, 1.0]),
)


@given(st.integers(0, 1000), st.lists(FILTERS, min_size=1, max_size=4))
def test_the_filters_are_those_of_transformers(
    seed: int, rows: list[tuple[int, float, float]]
) -> None:
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(len(rows), 3, 11, generator=generator) * 3
    table[:, :, 4] = -math.inf  # a forbidden token
    top_ks, top_ps, min_ps = zip(*rows, strict=True)
    actual = filtered(table, torch.tensor(top_ps), top_ks, torch.tensor(min_ps))
    for row, (top_k, top_p, min_p) in enumerate(rows):
        wanted, none = table[row], torch.empty(3, 0, dtype=torch.long)
        if top_k > 0:
            wanted = TopKLogitsWarper(top_k)(none, wanted)
        wanted = MinPLogitsWarper(min_p)(none, TopPLogitsWarper(top_p)(none, wanted))
        assert torch.equal(actual[row], wanted)


def test_filters_keep_ties_with_the_last_token() -> None:
    tied = torch.tensor([[[0.4, 0.2, 0.2, 0.2]]]).log()
    for top_k, num_kept in [(1, 1), (2, 4), (4, 4), (0, 4)]:
        actual = filtered(tied, None, [top_k], None)
        assert actual.isfinite().sum() == num_kept
    assert filtered(tied, torch.tensor([0.5]), (), None).isfinite().all()
    assert filtered(tied, None, (), torch.tensor([0.5])).isfinite().all()
    assert filtered(tied, None, (), torch.tensor([0.51])).isfinite().sum() == 1


def test_a_narrow_filter_is_greedy_and_none_works_at_temperature_0(small: Checkpoint) -> None:
    prompts = word_prompts(small, 3, seed=5)
    greedy = plain(small, prompts, 16)
    for narrow in ({"top_p": 0.01}, {"top_k": 1}, {"min_p": 1.0}):
        assert plain(small, prompts, 16, temperature=1.0, seed=3, **narrow) == greedy
    assert plain(small, prompts, 16, top_k=2, top_p=0.5, min_p=0.3, seed=3) == greedy
