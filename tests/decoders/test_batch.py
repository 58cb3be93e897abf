"""The one way in to batches: every method, groups, refusals; and decoding without a cache."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers import Ids, ScriptedModel, foresight_script, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime import batch_folds
from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.baselines import BATCH_METHODS, decode_batch, decode_uncached
from mars_runtime.events import Prefill, Step
from mars_runtime.settings import DecodeSettings
from tests import slow_twin

IDS = Ids()
SETTINGS = DecodeSettings(tau=0.6, max_new_tokens=14)
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 3], [4, 4, 4]]


def run(method, prompts=PROMPTS, settings=SETTINGS, batch_size=2, cache_block=4, seed=5):
    model = ScriptedModel(foresight_script(seed))
    return list(
        decode_batch(model, IDS, prompts, method, lambda: settings, batch_size, cache_block)
    )


@pytest.mark.parametrize("method", BATCH_METHODS)
def test_groups_follow_each_other_and_rows_are_prompts(method) -> None:
    events = run(method)
    groups = [i for i, event in enumerate(events) if isinstance(event, Prefill)]
    assert len(groups) == 3
    for place, begin in enumerate(groups):
        part = events[begin + 1 : groups[place + 1] if place < 2 else None]
        rows = {row.row for step in part for row in (*step.rows, *step.idle)}
        assert rows == {*range(2 * place, min(2 * place + 2, 5))}
    alone = [tokens_of(run(method, [prompt]))[0] for prompt in PROMPTS]
    assert tokens_of(events, 5) == alone


@pytest.mark.parametrize("method", BATCH_METHODS)
def test_ar_takes_one_token_and_the_others_more(method) -> None:
    counts = Counter(len(step.accepted) for row in range(5) for step in steps_of(run(method), row))
    assert (max(counts) > 1) == (method != "ar")


@pytest.mark.parametrize("method", BATCH_METHODS)
def test_law_8_at_one_token_a_forward_all_methods_write_the_same(method) -> None:
    settings = DecodeSettings(tau=1.0, max_new_tokens=14)
    assert tokens_of(run(method, settings=settings), 5) == tokens_of(run("ar"), 5)


def test_the_cache_that_is_reserved_is_told() -> None:
    """The scripted cache has a byte a slot; cursor rows have slack for 64 tokens."""
    found = {
        method: batch_folds.peak_cache_bytes(run(method, [[3, 4, 5], [6]]))
        for method in BATCH_METHODS
    }
    assert found == {"ar": 2 * 81, "cursor": 2 * 81, "block": 2 * 17, "uncached": 2 * 17}


@given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    block_size=st.integers(1, 7),
    tau=st.sampled_from([0.0, 0.6, 1.0]),
    limit=st.integers(1, 20),
    temperature=st.sampled_from([0.0, 0.9]),
)
def test_no_cache_equals_the_slow_twin(seed, lengths, block_size, tau, limit, temperature) -> None:
    settings = DecodeSettings(
        tau=tau, block_size=block_size, max_new_tokens=limit, temperature=temperature, seed=seed
    )
    prompts = [[3 + (seed + i) % 13 for i in range(length)] for length in lengths]
    script = foresight_script(seed)
    slow, fast = (
        list(decode(ScriptedModel(script), IDS, prompts, lambda: settings))
        for decode in (slow_twin.decode, decode_uncached)
    )
    for row in range(len(prompts)):
        ours, theirs = steps_of(fast, row), steps_of(slow, row)
        assert [(s.start, s.proposals, s.accepted, s.stop, s.num_pending) for s in ours] == [
            (s.start, s.proposals, s.accepted, s.stop, s.num_pending) for s in theirs
        ]
    assert all(step.cursor == 0 for e in fast if isinstance(e, Step) for step in e.rows)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "magic"}, "Choose a method among ar, cursor, block, uncached."),
        ({"batch_size": 0}, "The batch size must be a whole number from 1 to 64."),
        ({"batch_size": 2.0}, "The batch size must be a whole number from 1 to 64."),
        ({"method": "block", "cache_block": 2}, "The cache block must be a whole number"),
        ({"prompts": []}, "Give at least one prompt."),
        ({"prompts": [[3], []]}, "The prompt has no tokens"),
        ({"prompts": [[3], [99]]}, "token ids outside"),
        ({"settings": DecodeSettings(block_size="auto")}, "give a number as B"),
        ({"method": "block", "settings": DecodeSettings(block_size="auto")}, "give a number as B"),
        ({"method": "block", "settings": DecodeSettings(lossless=True)}, "switch lossless off"),
        ({"method": "uncached", "settings": DecodeSettings(lossless=True)}, "switch lossless off"),
    ],
)
def test_refused_at_once_with_a_sentence(changes, sentence) -> None:
    arguments = {"prompts": PROMPTS, "method": "cursor", "settings": SETTINGS, "batch_size": 2}
    arguments |= {"cache_block": 4, **changes}
    settings = arguments.pop("settings")
    with pytest.raises(DecodeError, match=sentence):
        decode_batch(
            ScriptedModel(foresight_script(1)), IDS, settings=lambda: settings, **arguments
        )


@pytest.mark.parametrize("method", ["block", "uncached"])
def test_lossless_in_mid_run_is_refused_too(method) -> None:
    now = [SETTINGS]
    model = ScriptedModel(foresight_script(2, eos_share=0))
    events = decode_batch(model, IDS, [[3]], method, lambda: now[0], 1, 8)
    next(events), next(events)
    now[0] = DecodeSettings(lossless=True, max_new_tokens=14)
    with pytest.raises(DecodeError, match="switch lossless off"):
        list(events)


def test_without_a_mask_token_only_ar_works() -> None:
    ids = Ids(mask_id=None)
    model = ScriptedModel(foresight_script(1))
    for method in ("cursor", "block", "uncached"):
        with pytest.raises(DecodeError, match="no mask token"):
            decode_batch(model, ids, [[3]], method, lambda: SETTINGS, 1)
    assert tokens_of(decode_batch(model, ids, [[3]], "ar", lambda: SETTINGS, 1))[0]
