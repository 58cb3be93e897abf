"""Law 12: what changes logits, by definition. AR and every exact method write what a loop over full
recomputation writes; the native reader reads what the plain one reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, cycle
from typing import Any

import pytest
import torch
from helpers import Ids, Script, ScriptedModel, steps_of, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st
from law_checkpoints import run, word_prompts
from native_models import LLAMA, MASK_ID, native_model
from test_laws import ADDITIONS, CHANGES, EARLY_END, EXACT

from mars_runtime.decoders.cursor import decode
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.model.forward import MaskGroup, SamplingMetadata
from mars_runtime.model.load import Checkpoint
from mars_runtime.model.predictions import Draw, Penalty
from mars_runtime.settings import MASK_LAYOUTS, METRICS, DecodeSettings, SettingsError

EACH_FORWARD = pytest.mark.usefixtures("each_forward")
IDS = Ids()
REPETITION = CHANGES["repetition"]
EACH = [{name: value} for name, value in {**ADDITIONS, **REPETITION}.items()]


# The definition, on scripted models.


def flat_script(seed: int) -> Script:
    """Return logits so close together that changes decide; masks usually predict well."""

    @cache
    def script(prefix: tuple[int, ...]) -> list[float]:
        num_masks = prefix.count(IDS.mask_id)
        real = [token for token in prefix if token != IDS.mask_id]
        place = len(real) + num_masks
        rng = random.Random(f"{seed}/{place}/{real[-1:] if num_masks == 0 else ''}")
        shared = random.Random(f"{seed}/{place}")
        return [2 * shared.gauss(0, 1) + rng.gauss(0, 1) for _ in range(18)]

    return script


def reference(script: Script, prompt: Sequence[int], limit: int, changes: Any) -> list[int]:
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
biases = st.dictionaries(st.integers(0, 17), st.sampled_from([-100.0, -1.5, 0.75, 3.0]), max_size=4)
additions = st.fixed_dictionaries(
    {
        "presence_penalty": penalties,
        "frequency_penalty": penalties,
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "logit_bias": biases.map(lambda actual: tuple(sorted(actual.items()))),
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
ways = st.builds(
    lambda way, tau, size, metric: {"tau": tau, "block_size": size, "metric": metric, **way},
    st.sampled_from([{"method": "ar"}, *list(EXACT.values())[:4], EXACT["jacobi"]]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(1, 8),
    st.sampled_from(METRICS),
)
prompts = st.lists(st.integers(3, 15), min_size=1, max_size=6)


@EACH_FORWARD
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 999), prompts, additions, filters, ways, st.booleans())
def test_output_is_that_of_the_definition_and_drawn_output_that_of_ar(
    seed: int, prompt: list[int], changes: Any, kept: Any, way: Any, is_drawn: bool
) -> None:
    script = flat_script(seed)

    def written(**way: Any) -> list[list[int]]:
        drawn = {"temperature": 0.8, "seed": seed, **kept} if is_drawn else {}
        run_settings = DecodeSettings(max_new_tokens=24, **way, **changes, **drawn)
        return tokens_of(decode(ScriptedModel(script), IDS, [prompt], lambda: run_settings))

    wanted = written(method="ar") if is_drawn else [reference(script, prompt, 24, changes)]
    assert written(**way) == wanted


@EACH_FORWARD
@pytest.mark.parametrize("lossless", [False, True])
def test_masks_propose_eos_only_behind_the_minimum(foreseeing: Checkpoint, lossless: bool) -> None:
    """Each slot goes by the position that it predicts, so a mask may propose EOS behind it."""
    prompts = word_prompts(foreseeing, 12, seed=6)
    places: list[int] = []
    usual = DecodeSettings(tau=0.0, block_size=6, max_new_tokens=24, logit_bias=EARLY_END)
    for number in range(4, 10):
        settings = replace(usual, lossless=lossless, min_tokens=number)
        events = run(foreseeing, prompts, settings)
        for step in (step for row in range(len(prompts)) for step in steps_of(events, row)):
            tokens = [slot.token for slot in step.proposals]
            at = [i for i, t in enumerate(tokens) if t in foreseeing.tokenizer.eos_ids]
            assert all(step.start + i >= number for i in at)
            places += [i for i in at if step.start < number]
    assert places  # proposed behind the minimum by a forward that began before it


@EACH_FORWARD
@pytest.mark.parametrize("changes", ["repetition", "additions", "late end", "endless"])
def test_a_draft_model_counts_the_same_tokens(foreseeing: Checkpoint, changes: str) -> None:
    """The target as its own draft model agrees with itself only if both count the same tokens."""
    common = {"block_size": 4, "tau": 0.0, "masked": "none", "max_new_tokens": 32}
    settings = DecodeSettings("speculative", **common, **CHANGES[changes])
    steps = steps_of(run(foreseeing, word_prompts(foreseeing, 1, seed=2), settings, foreseeing))
    assert all(step.stop != "mismatch" for step in steps)


# The native reader.


def ids_of(count: int) -> torch.Tensor:
    return torch.randint(5, 140, (1, count), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("changes", ["repetition", "additions", "both"])
@pytest.mark.parametrize(("metric", "name"), [*zip(METRICS, cycle(["llama", "untied"]))])
def test_native_readings_are_those_of_the_changed_logits(
    name: str, metric: Any, changes: str
) -> None:
    model = native_model(name)
    size = model.config.vocab_size
    hidden = model.hidden(ids_of(24).view(3, 8), model.new_cache(3, 16))
    logits = model.logits(hidden, slice(0, 8))
    best = logits.argmax(-1).flatten().tolist()  # so that penalties change what is chosen
    added = {"presence_penalty": 1.5, "frequency_penalty": 0.5}
    bias = ((0, 3.0), (17, 6.0), (size - 1, -3.0), (size + 9, 5.0))
    more = {} if changes == "repetition" else {**added, "logit_bias": bias}
    factor = 1.0 if changes == "additions" else 1.5
    run_settings = DecodeSettings(repetition_penalty=factor, **more)
    biased = DecodeSettings(logit_bias=((31, 9.0), (140, 8.0)), min_tokens=3)
    held = [
        Penalty.of(run_settings, best, 4, [0, 1, 4, 6, 9, 20, 24], size),  # all slots but the last
        None,
        Penalty.of(biased, best, 4, range(8), size, frozenset({31, best[16]})),
    ]
    for draws in ((), [None, Draw(0.7, 5, range(8)), Draw(0.7, 5, range(8))]):
        plainly = SamplingMetadata(torch.tensor([0, MASK_ID]), [metric] * 3, draws)
        sampling = replace(plainly, penalties=held)
        actual, wanted = model.predict(hidden, slice(0, 8), sampling), sampling.proposals(logits)
        assert actual != model.predict(hidden, slice(0, 8), plainly)
        for first, other in zip(chain(*actual), chain(*wanted), strict=True):
            assert first.token == other.token
            assert first.confidence == pytest.approx(other.confidence, abs=1e-5)
            assert [t for t, _ in first.runners_up] == [t for t, _ in other.runners_up]


def test_candidates_are_ranked_as_the_penalty_left_them() -> None:
    """A sampler head chooses among the four that are best after the penalty."""
    model = native_model("llama", 8, has_adapter=True, sampler_width=32)
    fed = torch.tensor([[70, 9, MASK_ID, MASK_ID, MASK_ID]])
    hidden, forbidden = model.hidden(fed, model.new_cache(1, 8)), torch.tensor([0, MASK_ID])
    groups = [MaskGroup(0, 1, range(2, 5))]

    def read(penalty: Penalty | None, among: Sequence[MaskGroup]) -> Any:
        sampling = SamplingMetadata(forbidden, ["probability"], (), among, [penalty])
        return model.predict(hidden, slice(0, 5), sampling)[0]

    loved = [slot.token for slot in read(None, ())]
    run_settings = DecodeSettings(repetition_penalty=2.0)
    penalty = Penalty.of(run_settings, loved, 0, [len(loved)] * 5, LLAMA.vocab_size)
    plainly, ranked = read(penalty, ()), read(penalty, groups)
    for first, other in zip(plainly, ranked, strict=True):
        mine = {first.token, *(token for token, _ in first.runners_up)}
        assert mine == {other.token, *(token for token, _ in other.runners_up)}
    assert plainly[:2] == ranked[:2]
    assert plainly[2:] != ranked[2:]
    assert [slot.token for slot in plainly] != loved


@pytest.mark.parametrize("changes", ["greedy", "endless", "drawn with all"])
@pytest.mark.parametrize("way", ["mask groups and lookup", "jacobi"])
def test_native_exact_output_is_that_of_ar_to_the_bit(way: str, changes: str) -> None:
    model = native_model("llama", 8, has_adapter=True, sampler_width=32)
    ids = Ids(size=150, mask_id=MASK_ID, forbidden_ids=frozenset({0, 1, MASK_ID}))
    plainly = DecodeSettings("ar", max_new_tokens=24, tau=0.0, block_size=4, **CHANGES[changes])
    for seed, mask_layout in enumerate((*MASK_LAYOUTS, "every")):
        layout = {} if way == "jacobi" else {"mask_layout": mask_layout}
        speculative = replace(plainly, **{"method": "mars", **EXACT[way], **layout})
        prompt = ids_of(9 + seed)[0].tolist()
        both = (speculative, plainly)
        actual, wanted = (steps_of(decode(model, ids, [prompt], lambda i=i: i)) for i in both)
        slots = [slot for step in actual for slot in step.proposals[: len(step.accepted)]]
        assert slots == [step.proposals[0] for step in wanted]


# What is stored, kept apart and refused.


def test_block_diffusion_refuses_them() -> None:
    for changes in [*EACH, {"min_tokens": 1}]:
        with pytest.raises(SettingsError, match=rf"^{next(iter(changes))} does not work"):
            DecodeSettings("block_diffusion", **changes)


def test_a_token_that_the_model_lacks_is_refused(small: Checkpoint) -> None:
    size = small.model.config.vocab_size
    request = Request([5], DecodeSettings(max_new_tokens=4, logit_bias=((size, 1.0),)))
    with pytest.raises(RequestError, match=f"names token {size}, but the ids .* below {size}"):
        check_fits(small.model, request, 64)
