"""The sampler head against the formula that trained it, on numbers by hand, and the native one
against it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from native_models import CONFIGS, MASK_ID, TARGETS, native_model, random_adapter, random_weights

from mars_runtime.model.forward import MaskGroup, SamplingMetadata
from mars_runtime.model.predictions import proposals_from_logits
from mars_runtime.model.reranker import Reranker, SamplerWeights, Tables
from mars_runtime.model.transformer import Transformer
from mars_runtime.settings import Metric

EMBEDDING = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
FIRST = torch.tensor([[1.0, 0.0, 0.0, 0.0]])  # looks at the first number of the token before
SECOND = torch.tensor([[0.0], [math.log(3.0) / (1 / (1 + math.exp(-1)))]])  # log 3 where that is 1
UNSURE = [(0, 0.5), (1, 0.25), (3, 0.05), (2, 0.0)]
Candidates = list[tuple[int, float]]


def ranked(before: int, masks: list[Candidates]) -> list[Candidates]:
    """Rank a group of masks behind the token ``before``; returns (token, probability) pairs."""
    tables = Tables.of(SamplerWeights(FIRST, SECOND), lambda ids: EMBEDDING[ids], 4)
    reranker = Reranker(tables, torch.ones(2), 1e-6)
    first = [(before, 1.0), *[(token, 0.0) for token in range(4) if token != before]]
    ids, best = columns([[first, *masks]])
    states = torch.tensor([[[3.0, 4.0]] * (1 + len(masks))])
    reranker.rank(states, [MaskGroup(0, 0, range(1, 1 + len(masks)))], best, ids)
    unchanged, *actual = pairs(ids, best)[0]
    assert unchanged == first
    return actual


def columns(slots: list[list[Candidates]]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids and probabilities [R, S, 4]."""
    table = torch.tensor(slots, dtype=torch.float64)
    return table[..., 0].long(), table[..., 1].float()


def pairs(ids: torch.Tensor, best: torch.Tensor) -> list[list[Candidates]]:
    return [
        [list(zip(*slot, strict=True)) for slot in zip(*row, strict=True)]
        for row in zip(ids.tolist(), best.tolist(), strict=True)
    ]


def test_candidates_share_their_probability_again() -> None:
    """Behind token 0 each candidate with a second number counts three times as much."""
    (actual,) = ranked(0, [UNSURE])
    assert [token for token, _ in actual] == [1, 0, 3, 2]
    shares = [0.8 * weight / 1.3 for weight in (0.75, 0.5, 0.05, 0.0)]
    assert [share for _, share in actual] == pytest.approx(shares)
    (same,) = ranked(1, [UNSURE])
    assert [share for _, share in same] == pytest.approx([share for _, share in UNSURE])
    assert [token for token, _ in same] == [token for token, _ in UNSURE]


def test_each_mask_follows_what_was_chosen_for_the_one_before() -> None:
    """The first mask becomes 1, behind which nothing changes; unranked it was 0."""
    first, second = ranked(0, [UNSURE, UNSURE])
    assert (first[0][0], second[0][0]) == (1, 0)
    assert second[0][1] == pytest.approx(0.5)


def test_a_margin_is_that_of_the_new_order() -> None:
    def swap(best: torch.Tensor, ids: torch.Tensor) -> None:
        best[..., :2] = torch.tensor([0.75, 0.25])
        ids[..., :2] = torch.tensor([1, 0])

    logits = torch.tensor([[[2.0, 1.0, 0.0, -1.0]]])
    none = torch.tensor([], dtype=torch.long)
    ((actual,),) = proposals_from_logits(logits, none, ["margin"], rank=swap)
    assert actual.token == 1
    assert actual.confidence == pytest.approx(0.5)


def of_native(width: int, target: str = "this processor"):  # type: ignore[no-untyped-def]
    return native_model("llama", 8, target=target, has_adapter=True, sampler_width=width)


FORBIDDEN = torch.tensor([0, MASK_ID])
FED = torch.tensor([[70, 9, MASK_ID, MASK_ID, MASK_ID], [11, 12, 13, MASK_ID, MASK_ID]])
GROUPS = [MaskGroup(0, 1, range(2, 5)), MaskGroup(1, 2, range(3, 5))]
METRICS: list[Metric] = ["probability", "margin"]
PLAIN = SamplingMetadata(FORBIDDEN, METRICS)
RANKED = replace(PLAIN, groups=GROUPS)


@pytest.mark.parametrize("width", [32, 40])
@pytest.mark.parametrize("target", TARGETS)
def test_the_native_head_ranks_as_the_plain_one(target: str, width: int) -> None:
    native = of_native(width, target)
    hidden = native.hidden(FED, native.new_cache(2, 8))
    plain = native.predict(hidden, slice(0, 5), PLAIN)
    actual = native.predict(hidden, slice(0, 5), RANKED)
    config = CONFIGS["llama"]
    weights = random_weights(config, 8)
    adapter = random_adapter(config, sampler_width=width)
    table = weights["model.embed_tokens.weight"].dense()
    tables = Tables.of(adapter.sampler, lambda ids: table[ids], config.vocab_size)
    oracle = Reranker(tables, weights["model.norm.weight"], config.rms_norm_eps)
    head = {"rank": partial(oracle.rank, hidden, GROUPS)}
    wanted = proposals_from_logits(native.logits(hidden, slice(0, 5)), FORBIDDEN, METRICS, **head)
    assert [slots[:2] for slots in actual] == [slots[:2] for slots in plain]
    assert actual != plain
    for slots, others in zip(actual, wanted, strict=True):
        for first, other in zip(slots, others, strict=True):
            assert first.token == other.token
            assert first.confidence == pytest.approx(other.confidence, abs=0.02)
            mine, theirs = dict(first.runners_up), dict(other.runners_up)
            assert mine.keys() == theirs.keys()
            assert all(mine[token] == pytest.approx(theirs[token], abs=0.02) for token in mine)


def test_a_native_group_is_ranked_alike_in_any_company() -> None:
    native = of_native(32)
    hidden = native.hidden(FED, native.new_cache(2, 8))
    both = native.predict(hidden, slice(0, 5), RANKED)
    sampling = SamplingMetadata(FORBIDDEN, METRICS[1:], groups=[MaskGroup(0, 0, range(1, 3))])
    alone = native.predict(hidden[1:], slice(2, 5), sampling)
    assert both[1][2:] == alone[0]


def test_the_plain_model_ranks_too_if_it_is_given_a_group() -> None:
    config = CONFIGS["llama"]
    adapter = random_adapter(config, sampler_width=32)
    model = Transformer(config, random_weights(config, 8), adapter=adapter, mask_id=MASK_ID)
    hidden = model.hidden(FED, model.new_cache(2, 8))
    plain = model.predict(hidden, slice(0, 5), PLAIN)
    actual = model.predict(hidden, slice(0, 5), RANKED)
    assert [slots[:2] for slots in actual] == [slots[:2] for slots in plain]
    assert actual[0][2:] != plain[0][2:]
