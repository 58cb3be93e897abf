"""The sampler head against the formula that trained it, on numbers by hand, and the native one
against it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from native_models import CONFIGS, MASK_ID, TARGETS, native_model, random_adapter, random_weights

from mars_runtime.events import Proposal
from mars_runtime.model.build import dense_weights
from mars_runtime.model.forward import MaskGroup, SamplingMetadata
from mars_runtime.model.qwen2 import Qwen2
from mars_runtime.model.reranker import Reranker, Sampler, Tables
from mars_runtime.settings import Metric

EMBEDDING = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
FIRST = torch.tensor([[1.0, 0.0, 0.0, 0.0]])  # looks at the first number of the token before
SECOND = torch.tensor([[0.0], [math.log(3.0) / (1 / (1 + math.exp(-1)))]])  # log 3 where that is 1
UNSURE = Proposal(0, 0.5, ((1, 0.25), (3, 0.05)))


def ranked(
    before: int, masks: list[Proposal], metric: Metric = "probability"
) -> tuple[Proposal, ...]:
    """A group of masks behind the token ``before``."""
    tables = Tables.of(Sampler(FIRST, SECOND), lambda ids: EMBEDDING[ids], 4)
    reranker = Reranker(tables, torch.ones(2), 1e-6)
    slots = [Proposal(before, 1.0, ()), *masks]
    hidden = torch.tensor([[[3.0, 4.0]] * len(slots)])
    group = MaskGroup(0, 0, range(1, len(slots)))
    first, *found = reranker.rank(hidden, [slots], [group], [metric])[0]
    assert first == slots[0]
    return tuple(found)


def test_candidates_share_their_probability_anew() -> None:
    """Behind token 0 each candidate with a second number counts three times as much."""
    (found,) = ranked(0, [UNSURE])
    assert found.token == 1
    assert found.confidence == pytest.approx(0.8 * 0.75 / 1.3)
    assert [token for token, _ in found.runners_up] == [0, 3]
    assert found.runners_up[0][1] == pytest.approx(0.8 * 0.5 / 1.3)
    (same,) = ranked(1, [UNSURE])
    assert same.token == 0
    assert same.confidence == pytest.approx(0.5)


def test_each_mask_follows_what_was_chosen_for_the_one_before() -> None:
    """The first mask becomes 1, behind which nothing changes; unranked it was 0."""
    first, second = ranked(0, [UNSURE, UNSURE])
    assert (first.token, second.token) == (1, 0)
    assert second.confidence == pytest.approx(0.5)


def test_a_margin_is_that_of_the_new_order() -> None:
    (found,) = ranked(0, [Proposal(0, 0.5 - 0.25, ((1, 0.25), (3, 0.05)))], "margin")
    assert found.token == 1
    assert found.confidence == pytest.approx(0.8 * (0.75 - 0.5) / 1.3)


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
    plain = native.read(hidden, slice(0, 5), PLAIN)
    found = native.read(hidden, slice(0, 5), RANKED)
    config = CONFIGS["llama"]
    weights = dense_weights(random_weights(config, 8))
    adapter = random_adapter(config, sampler_width=width)
    table = weights["model.embed_tokens.weight"]
    assert adapter.sampler is not None
    tables = Tables.of(adapter.sampler, lambda ids: table[ids], config.vocab_size)
    oracle = Reranker(tables, weights["model.norm.weight"], config.rms_norm_eps)
    wanted = oracle.rank(hidden, plain, GROUPS, METRICS)
    assert [slots[:2] for slots in found] == [slots[:2] for slots in plain]
    assert found != plain
    for slots, others in zip(found, wanted, strict=True):
        for one, other in zip(slots, others, strict=True):
            assert one.token == other.token
            assert one.confidence == pytest.approx(other.confidence, abs=0.02)
            mine, theirs = dict(one.runners_up), dict(other.runners_up)
            assert mine.keys() == theirs.keys()
            assert all(mine[token] == pytest.approx(theirs[token], abs=0.02) for token in mine)


def test_a_native_group_is_ranked_alike_in_any_company() -> None:
    native = of_native(32)
    hidden = native.hidden(FED, native.new_cache(2, 8))
    both = native.read(hidden, slice(0, 5), RANKED)
    own = SamplingMetadata(FORBIDDEN, METRICS[1:], groups=[MaskGroup(0, 0, range(1, 3))])
    alone = native.read(hidden[1:], slice(2, 5), own)
    assert both[1][2:] == alone[0]


def test_the_plain_model_ranks_too_where_a_group_is_told() -> None:
    config = CONFIGS["llama"]
    adapter = random_adapter(config, sampler_width=32)
    model = Qwen2(
        config, dense_weights(random_weights(config, 8)), adapter=adapter, mask_id=MASK_ID
    )
    hidden = model.hidden(FED, model.new_cache(2, 8))
    plain = model.read(hidden, slice(0, 5), PLAIN)
    found = model.read(hidden, slice(0, 5), RANKED)
    assert [slots[:2] for slots in found] == [slots[:2] for slots in plain]
    assert found[0][2:] != plain[0][2:]
