"""The block cache on scripted models: commits, waiting rows, the first token of a block, ends."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from helpers import Ids, ScriptedModel, counting, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.baselines import MAX_BATCH_SIZE, decode_batch
from mars_runtime.errors import DecodeError
from mars_runtime.runs.events import IdleRow, Prefill, Step
from mars_runtime.settings import DecodeSettings

IDS = Ids()
SURE = DecodeSettings(tau=0.5, block_size=4, max_new_tokens=12)


def forgetful(prefix):
    """Counts as well, but masks are sure of themselves only behind prompts that began with 3."""
    height = 30.0 if prefix[0] == 3 or IDS.mask_id not in prefix else 0.1
    return [height / 30.0 * logit for logit in counting(prefix)]


def decode_block(model, ids, prompts, settings, cache_block=32):
    return decode_batch(model, ids, prompts, "block", settings, MAX_BATCH_SIZE, cache_block)


def run(script, prompts, settings=SURE, cache_block=4, **model):
    made = ScriptedModel(script, **model)
    return list(decode_block(made, IDS, prompts, lambda: settings, cache_block)), made


def forwards(events):
    return [event for event in events if isinstance(event, Step)]


def test_a_block_is_filled_then_committed_and_the_commit_predicts_one_token() -> None:
    events, model = run(counting, [[3, 4, 5]], SURE, cache_block=6)
    assert events[0] == Prefill(2, cache_bytes=3 + 12)
    steps = steps_of(events)
    assert [step.accepted for step in steps] == [
        (6,),  # the prompt's last token committed: no masks, one token
        (7, 8, 9, 10),
        (11,),  # no proposal goes beyond the block
        (12,),  # the block of six committed, its last slot predicts the next block's first token
        (13, 14, 15, 3),
        (4,),
    ]
    assert [event.is_commit for event in forwards(events)] == [1, 0, 0, 1, 0, 0]
    assert [(s.cursor, s.num_pending, s.num_fed) for s in steps] == [
        (2, 1, 1),
        (3, 1, 6),
        (3, 5, 6),
        (3, 6, 6),
        (9, 1, 6),
        (9, 5, 6),
    ]
    mask = IDS.mask_id
    assert model.forwards[:4] == [
        [[5]],
        [[6] + [mask] * 5],
        [[6, 7, 8, 9, 10, mask]],
        [[6, 7, 8, 9, 10, 11]],
    ]
    assert steps[-1].stop == "limit"


def test_full_rows_wait_for_the_block_and_ended_rows_to_the_end() -> None:
    events, _ = run(forgetful, [[3, 4], [4, 4]], SURE, cache_block=4)
    waits = [event.idle for event in forwards(events)]
    full = IdleRow(0, "block", 2, 4, 4)
    assert waits[:5] == [(), (), (full,), (full,), ()]
    assert tokens_of(events, 2) == [
        tokens_of(run(forgetful, [prompt], SURE, cache_block=4)[0])[0]
        for prompt in ([3, 4], [4, 4])
    ]
    ended = [idle for event in forwards(events) for idle in event.idle if idle.wait == "finished"]
    assert {idle.row for idle in ended} == {0}


def test_the_last_block_is_no_longer_than_what_may_leave() -> None:
    settings = DecodeSettings(tau=0.5, block_size=8, max_new_tokens=6)
    events, _ = run(counting, [[3]], settings, cache_block=256, max_positions=7)
    assert [step.num_fed for step in steps_of(events)] == [1, 6]
    assert [len(tokens) for tokens in tokens_of(events)] == [6]


def test_eos_inside_a_block_ends_the_row_there() -> None:
    def script(prefix):
        return peaked(2 if len(prefix) >= 6 else 7, 30.0)

    settings = DecodeSettings(tau=0.5, block_size=2, max_new_tokens=12)
    events, _ = run(script, [[3, 4], [3, 4, 5, 6, 7]], settings, cache_block=8)
    assert tokens_of(events, 2) == [[7, 7, 7, 7, 2], [7, 2]]
    assert [step.stop for step in steps_of(events, 1)] == ["block", "eos"]
    assert forwards(events)[-1].idle == (IdleRow(1, "finished", 5, 2, 8),)


def test_an_ended_row_is_fed_no_more_than_a_shorter_last_block() -> None:
    """Row 0 ends with a long block behind it; the others' last block is shorter."""

    def script(prefix):
        is_over = prefix[0] == 4 and len(prefix) >= 8
        return peaked(2, 30.0) if is_over else counting(prefix)

    settings = DecodeSettings(tau=0.5, block_size=8, max_new_tokens=10)
    events, _ = run(script, [[4], [3]], settings, cache_block=8)
    assert [len(tokens) for tokens in tokens_of(events, 2)] == [8, 10]
    assert forwards(events)[-1].idle == (IdleRow(0, "finished", 1, 2, 2),)


@given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    cache_block=st.integers(4, 12),
    block_size=st.integers(1, 7),
    tau=st.sampled_from([0.0, 0.6, 0.95]),
    limit=st.integers(1, 25),
    temperature=st.sampled_from([0.0, 0.9]),
)
def test_any_batch(seed, lengths, cache_block, block_size, tau, limit, temperature) -> None:
    settings = DecodeSettings(
        tau=tau, block_size=block_size, max_new_tokens=limit, temperature=temperature, seed=seed
    )
    script = foresight_script(seed)
    prompts = [[3 + (seed + i) % 13 for i in range(length)] for length in lengths]
    events, _ = run(script, prompts, settings, cache_block)
    tokens = tokens_of(events, len(prompts))
    for row, prompt in enumerate(prompts):
        assert tokens[row] == tokens_of(run(script, [prompt], settings, cache_block)[0])[0]
        steps = steps_of(events, row)
        assert all(1 <= len(step.accepted) <= block_size for step in steps)
        assert [step.stop in ("eos", "limit") for step in steps] == [False] * (len(steps) - 1) + [
            True
        ]
    for event in forwards(events):
        everyone = [row.row for row in event.rows] + [row.row for row in event.idle]
        assert sorted(everyone) == list(range(len(prompts)))
        assert event.rows
        assert len({row.num_fed for row in (*event.rows, *event.idle)}) == 1
        if event.is_commit:
            assert all(len(row.proposals) == 1 for row in event.rows)
            assert all(idle.wait == "finished" for idle in event.idle)
    for row in range(len(prompts)):
        for before, after in pairwise(steps_of(events, row)):
            moved = after.cursor - before.cursor
            assert moved in (0, before.num_pending)


def test_logits_that_are_no_numbers_name_their_row() -> None:
    def script(prefix):
        return [math.nan] * 18 if prefix[0] == 9 and len(prefix) > 3 else counting(prefix)

    with pytest.raises(DecodeError) as caught:
        run(script, [[3, 4], [9, 9]])
    assert caught.value.rows == (1,)
