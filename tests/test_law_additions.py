"""Law 12 for what is added to logits and for EOS: with presence and frequency penalties, a logit
bias, a minimum number of tokens and an ignored EOS, AR writes what a plain loop over full
recomputation writes, and lossless output equals AR's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from helpers import Ids, Script, ScriptedModel, steps_of, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st
from law_checkpoints import plain, transformers_greedy, word_prompts
from native_models import MASK_ID, native_model
from test_laws import check_law_3
from test_laws_speculative import check_same_steps
from test_laws_speculative import run as speculate

from mars_runtime.acceptance import Draw, Penalty
from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.base import decode_on
from mars_runtime.decoders.baselines import BATCH_METHODS, decode_batch
from mars_runtime.decoders.drafting import basis_of
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.model.forward import SamplingMetadata
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import GROUPS, METRICS, DecodeSettings, SettingsError
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")

ADDITIONS: dict[str, Any] = {
    "presence_penalty": 0.7,
    "frequency_penalty": 0.4,
    "logit_bias": ((3, 2.5), (5, -4.0), (7, 1.25), (40, -9.0), (70, -9.0), (115, -9.0)),
}
EACH = [{name: value} for name, value in ADDITIONS.items()] + [ADDITIONS]
EARLY_END = ((1, 2.0), (2, 2.0))
"""A bias towards EOS: 1 of the trained checkpoint, 2 of scripted and native models."""
MINIMUM: dict[str, Any] = {"min_tokens": 12, "logit_bias": EARLY_END}
ENDLESS: dict[str, Any] = {"ignore_eos": True, "logit_bias": EARLY_END}
LATE_END: dict[str, Any] = {
    **ADDITIONS, "min_tokens": 12, "logit_bias": EARLY_END + ADDITIONS["logit_bias"],
}  # fmt: skip
COSTS = ForwardCosts(8, {1: (1.0, 1.05, 1.1, 1.2, 1.3), 4: (1.0, 1.05, 1.1, 1.2, 1.3)})
IDS = Ids()


def flat_script(seed: int) -> Script:
    """Return logits so close together that additions decide; masks usually predict well."""

    @cache
    def script(prefix: tuple[int, ...]) -> list[float]:
        num_masks = prefix.count(IDS.mask_id)
        real = [token for token in prefix if token != IDS.mask_id]
        place = len(real) + num_masks
        rng = random.Random(f"{seed}/{place}/{real[-1:] if num_masks == 0 else ''}")
        shared = random.Random(f"{seed}/{place}")
        return [2 * shared.gauss(0, 1) + rng.gauss(0, 1) for _ in range(18)]

    return script


def reference(
    script: Script, prompt: Sequence[int], limit: int, changes: dict[str, Any]
) -> list[int]:
    """Write greedily by the definition: recompute each prefix, count the answer's tokens."""
    answer: list[int] = []
    ends = frozenset[int]() if changes.get("ignore_eos") else IDS.eos_ids
    while len(answer) < limit and not ends.intersection(answer):
        logits = list(script((*prompt, *answer)))
        factor = changes.get("repetition_penalty", 1.0)
        for token in {*prompt, *answer}:
            logits[token] *= factor if logits[token] < 0 else 1 / factor
        for token in set(answer):
            logits[token] -= changes.get("presence_penalty", 0.0)
            logits[token] -= changes.get("frequency_penalty", 0.0) * answer.count(token)
        for token, bias in changes.get("logit_bias", ()):
            if token < len(logits):
                logits[token] += bias
        never = IDS.forbidden_ids
        if len(answer) < changes.get("min_tokens", 0):
            never |= IDS.eos_ids
        allowed = [token for token in range(IDS.size) if token not in never]
        answer.append(max(allowed, key=logits.__getitem__))
    return answer


penalties = st.sampled_from([-2.0, -0.6, 0.0, 0.35, 1.0, 2.0])
additions = st.fixed_dictionaries(
    {
        "presence_penalty": penalties,
        "frequency_penalty": penalties,
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "logit_bias": st.dictionaries(
            st.integers(0, 17), st.sampled_from([-100.0, -1.5, 0.75, 3.0]), max_size=4
        ).map(lambda found: tuple(sorted(found.items()))),
        "min_tokens": st.sampled_from([0, 1, 7, 24, 30]),
        "ignore_eos": st.booleans(),
    }
)
filters = st.fixed_dictionaries(
    {
        "top_k": st.sampled_from([-1, 0, 1, 3, 7, 40]),
        "top_p": st.sampled_from([1.0, 0.9, 0.5]),
        "min_p": st.sampled_from([0.0, 0.05, 0.3]),
    }
)
ways = st.one_of(
    st.just({"method": "ar"}),
    st.builds(lambda size: {"method": "jacobi", "block_size": size}, st.integers(1, 9)),
    st.fixed_dictionaries(
        {
            "lossless": st.just(True),
            "tau": st.sampled_from([0.0, 0.3, 1.0]),
            "block_size": st.integers(1, 8),
            "metric": st.sampled_from(METRICS),
            "groups": st.sampled_from(GROUPS),
            "lookup": st.booleans(),
        }
    ),
)
prompts = st.lists(st.integers(3, 15), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 999), prompts, additions, ways)
def test_exact_output_is_that_of_the_definition(
    seed: int, prompt: list[int], changes: dict[str, Any], way: dict[str, Any]
) -> None:
    script = flat_script(seed)
    now = DecodeSettings(max_new_tokens=24, **way, **changes)
    found = tokens_of(decode(ScriptedModel(script), IDS, [prompt], lambda: now))
    assert found == [reference(script, prompt, 24, changes)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), prompts, additions, filters, ways)
def test_drawn_output_is_that_of_ar(
    seed: int,
    prompt: list[int],
    changes: dict[str, Any],
    kept: dict[str, Any],
    way: dict[str, Any],
) -> None:
    drawn = {"temperature": 0.8, "seed": seed, "max_new_tokens": 24, **changes, **kept}
    model = ScriptedModel(flat_script(seed))
    found = [
        tokens_of(decode(model, IDS, [prompt], lambda now=now: now))
        for now in (DecodeSettings(**way, **drawn), DecodeSettings("ar", **drawn))
    ]
    assert found[0] == found[1]


def test_rows_of_a_batch_keep_their_own_additions() -> None:
    script = flat_script(4)
    rows = [{}, *EACH, MINIMUM, LATE_END, ENDLESS, {**ADDITIONS, **ENDLESS}]
    batch = CursorBatch(ScriptedModel(script), IDS, len(rows), 64, COSTS)
    now = [
        DecodeSettings(lossless=True, tau=0.0, block_size="auto", max_new_tokens=30, **changes)
        for changes in rows
    ]
    for number, each in enumerate(now):
        batch.add(number, [3, 4, 5], lambda each=each: each)
    found: dict[int, list[int]] = {number: [] for number in range(len(rows))}
    num_drafts = 0
    while batch.rows:
        for row in batch.step().rows:
            found[row.row] += row.accepted
            num_drafts += len(row.drafts)
    wanted = [reference(script, [3, 4, 5], 30, changes) for changes in rows]
    assert list(found.values()) == wanted
    assert len(set(map(tuple, wanted))) > 2
    assert num_drafts


# On weights.


@pytest.mark.parametrize("changes", [*EACH, MINIMUM, LATE_END, ENDLESS])
def test_lossless_output_is_that_of_ar(
    small: Checkpoint, foreseeing: Checkpoint, changes: dict[str, Any]
) -> None:
    check_law_3(small, word_prompts(small, 9), 20, **changes)
    assert check_law_3(foreseeing, word_prompts(foreseeing, 18), 32, **changes) > 1.02
    prompt = word_prompts(foreseeing, 1)
    usual = {"logit_bias": EARLY_END} if changes.get("logit_bias") == EARLY_END else {}
    assert plain(foreseeing, prompt, 32, **changes) != plain(foreseeing, prompt, 32, **usual)


def test_the_minimum_number_of_tokens_is_that_of_transformers(foreseeing: Checkpoint) -> None:
    own = word_prompts(foreseeing, 8, seed=3)
    wanted = transformers_greedy(
        foreseeing, own, 32, min_new_tokens=12, sequence_bias=[[[token], 2.0] for token in (1, 2)]
    )
    assert plain(foreseeing, own, 32, **MINIMUM) == wanted
    lengths = [len(tokens) for tokens in plain(foreseeing, own, 32, logit_bias=EARLY_END)]
    assert max(lengths) < 12 < min(map(len, wanted)) <= max(map(len, wanted)) < 32


@pytest.mark.parametrize("lossless", [False, True])
def test_masks_propose_eos_only_behind_the_minimum(foreseeing: Checkpoint, lossless: bool) -> None:
    """Each slot goes by the position that it predicts, so a mask may propose EOS behind it."""
    own = word_prompts(foreseeing, 12, seed=6)
    eos_ids = foreseeing.tokenizer.eos_ids
    places: list[int] = []
    for number in range(4, 10):
        now = DecodeSettings(
            tau=0.0, block_size=6, lossless=lossless, max_new_tokens=24,
            **{**MINIMUM, "min_tokens": number},
        )  # fmt: skip
        events = list(decode(foreseeing.model, foreseeing.tokenizer, own, lambda now=now: now))
        for row in range(len(own)):
            for step in steps_of(events, row):
                first = step.start
                at = [i for i, slot in enumerate(step.proposals) if slot.token in eos_ids]
                assert all(first + i >= number for i in at)
                places += [i for i in at if first < number]
    assert places  # proposed behind the minimum by a forward that began before it


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("changes", [ADDITIONS, LATE_END, ENDLESS])
def test_cached_equals_full_recomputation(
    foreseeing: Checkpoint, groups: Any, lossless: bool, changes: dict[str, Any]
) -> None:
    own = word_prompts(foreseeing, 4, seed=5)
    now = DecodeSettings(
        tau=0.4, block_size=5, lossless=lossless, groups=groups, lookup=True, max_new_tokens=24,
        threshold="agreement", **changes,
    )  # fmt: skip
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    cached = decode(model, tokenizer, own, lambda: now)
    slow = slow_twin.decode(model, tokenizer, own, lambda: now)
    check_same_steps(cached, slow, len(own))


@pytest.mark.parametrize("changes", [ADDITIONS, LATE_END, ENDLESS])
def test_speculative_output_is_that_of_ar(
    foreseeing: Checkpoint, small: Checkpoint, changes: dict[str, Any]
) -> None:
    for index, prompt in enumerate(word_prompts(foreseeing, 6, seed=21)):
        wanted = plain(foreseeing, [prompt], 24, **changes)
        now = DecodeSettings(
            "speculative", block_size=(1, 4, 8)[index % 3], tau=0.5, groups=GROUPS[index % 2],
            max_new_tokens=24, **changes,
        )  # fmt: skip
        assert tokens_of(speculate(foreseeing, small, [prompt], now)) == wanted


@pytest.mark.parametrize("changes", [ADDITIONS, LATE_END, ENDLESS])
def test_a_draft_model_counts_the_answer_alone(
    foreseeing: Checkpoint, changes: dict[str, Any]
) -> None:
    """The target as its own draft model agrees with itself only if both count the same tokens."""
    (prompt,) = word_prompts(foreseeing, 1, seed=2)
    now = DecodeSettings(
        "speculative", block_size=4, tau=0.0, masked="none", max_new_tokens=32, **changes
    )
    steps = steps_of(speculate(foreseeing, foreseeing, [prompt], now))
    assert all(step.stop != "mismatch" for step in steps)


@pytest.mark.parametrize("tau", [0.3, 1.0])
@pytest.mark.parametrize("changes", [ADDITIONS, LATE_END, ENDLESS])
def test_every_way_of_a_batch_writes_the_same(
    foreseeing: Checkpoint, tau: float, changes: dict[str, Any]
) -> None:
    own = word_prompts(foreseeing, 3, seed=8)
    now = DecodeSettings(tau=tau, block_size=3, max_new_tokens=20, **changes)
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    found = {
        method: tokens_of(decode_batch(model, tokenizer, own, method, lambda: now, 3), 3)
        for method in BATCH_METHODS
    }
    assert found["uncached"] == found["cursor"]
    if tau == 1:
        assert found["block"] == found["ar"] == found["cursor"]


def test_where_b_is_chosen_automatically(foreseeing: Checkpoint) -> None:
    now = DecodeSettings(
        tau=0.0, block_size="auto", lossless=True, groups="every", lookup=True, max_new_tokens=40,
        **ADDITIONS,
    )  # fmt: skip
    own = word_prompts(foreseeing, 4, seed=13)
    batch = CursorBatch(foreseeing.model, foreseeing.tokenizer, 4, 100, COSTS)
    events = list(decode_on(batch, own, lambda: now))
    assert tokens_of(events, 4) == plain(foreseeing, own, 40, **ADDITIONS)


def test_confidences_are_of_the_changed_logits() -> None:
    script = flat_script(1)
    now = DecodeSettings("ar", max_new_tokens=1, logit_bias=((9, 100.0),))
    (step,) = steps_of(list(decode(ScriptedModel(script), IDS, [[3]], lambda: now)))
    assert step.accepted == (9,)
    assert step.proposals[0].confidence == pytest.approx(1.0)


# The native reader.


def ids_of(count: int) -> torch.Tensor:
    return torch.randint(5, 140, (1, count), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("factor", [1.0, 1.4])
@pytest.mark.parametrize("metric", METRICS)
def test_native_readings_are_those_of_the_changed_logits(metric: Any, factor: float) -> None:
    model = native_model("llama")
    size = model.config.vocab_size
    hidden = model.hidden(ids_of(24).view(3, 8), model.new_cache(3, 16))
    logits = model.logits(hidden, slice(0, 8))
    best = logits.argmax(-1).flatten().tolist()  # so that penalties change what is chosen
    now = DecodeSettings(
        repetition_penalty=factor, presence_penalty=1.5, frequency_penalty=0.5,
        logit_bias=((0, 3.0), (17, 6.0), (size - 1, -3.0), (size + 9, 5.0)),
    )  # fmt: skip
    biased = DecodeSettings(logit_bias=((31, 9.0), (140, 8.0)), min_tokens=3)
    held = [
        Penalty.of(now, best, 4, [0, 1, 4, 6, 9, 20, 24], size),  # the last slot is ignored
        None,
        Penalty.of(biased, best, 4, range(8), size, frozenset({31, best[16]})),
    ]
    forbidden, metrics = torch.tensor([0, MASK_ID]), [metric] * 3
    for draws in ((), [None, Draw(0.7, 5, range(8)), Draw(0.7, 5, range(8))]):
        sampling = SamplingMetadata(forbidden, metrics, draws, penalties=held)
        found, wanted = model.read(hidden, slice(0, 8), sampling), sampling.read(logits)
        plainly = SamplingMetadata(forbidden, metrics, draws)
        assert found != model.read(hidden, slice(0, 8), plainly)
        for ours, theirs in zip(found, wanted, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one.token == other.token
                assert one.confidence == pytest.approx(other.confidence, abs=1e-5)
                assert [each for each, _ in one.runners_up] == [
                    each for each, _ in other.runners_up
                ]


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("changes", [*EACH, MINIMUM, ENDLESS])
def test_native_lossless_output_is_that_of_ar_to_the_bit(
    groups: Any, changes: dict[str, Any]
) -> None:
    model = native_model("llama", 8, has_adapter=True, sampler_width=32)
    ids = Ids(size=150, mask_id=MASK_ID, forbidden_ids=frozenset({0, 1, MASK_ID}))
    now = DecodeSettings(
        tau=0.0, block_size=4, lossless=True, groups=groups, lookup=True, max_new_tokens=24,
        **changes,
    )  # fmt: skip
    plainly = DecodeSettings("ar", max_new_tokens=24, **changes)
    for seed in range(3):
        prompt = ids_of(9 + seed)[0].tolist()
        found = tokens_of(decode(model, ids, [prompt], lambda: now))
        assert found == tokens_of(decode(model, ids, [prompt], lambda: plainly))


# What is stored, kept apart and refused.


def test_a_bias_is_stored_as_pairs_by_rising_id() -> None:
    wanted = ((3, 2.5), (11, -1.0))
    for given_as in ({"11": -1.0, "3": 2.5}, {11: -1.0, 3: 2.5}, [[3, 2.5], [11, -1.0]], wanted):
        assert DecodeSettings(logit_bias=given_as).logit_bias == wanted  # type: ignore[arg-type]
    hash(DecodeSettings(logit_bias=wanted))


@pytest.mark.parametrize(
    "bias",
    [{"x": 1.0}, {"-1": 1.0}, {"1": 101}, {"1": "2"}, {"1": True}, {"1": float("nan")}, "x", 3,
     None, [[1]], [1], {str(token): 1.0 for token in range(301)}],
)  # fmt: skip
def test_a_bias_that_is_none_is_refused_in_a_sentence(bias: Any) -> None:
    with pytest.raises(SettingsError, match=r"^The logit bias must map at most 300 token ids to "):
        DecodeSettings(logit_bias=bias)


def test_block_diffusion_refuses_them() -> None:
    for changes, name in zip(
        [*EACH[:3], {"min_tokens": 1}],
        ("The presence penalty", "The frequency penalty", "The logit bias", "The minimum number"),
        strict=True,
    ):
        with pytest.raises(SettingsError, match=f"^{name}.* does not work with block diffusion"):
            DecodeSettings("block_diffusion", **changes)


def test_drafting_lessons_are_kept_apart() -> None:
    one = DecodeSettings(lossless=True, block_size="auto")
    for changes in EACH:
        assert basis_of(one) != basis_of(replace(one, **changes))


def test_a_token_that_the_model_lacks_is_refused(small: Checkpoint) -> None:
    size = small.model.config.vocab_size
    request = Request([5], DecodeSettings(max_new_tokens=4, logit_bias=((size, 1.0),)))
    with pytest.raises(RequestError, match=f"names token {size}, but the ids .* below {size}"):
        check_fits(small.model, request, 64)
