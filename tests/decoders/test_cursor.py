"""The cursor batch on scripted models: limits, ends, joining and leaving, faults."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from helpers import KEPT_BLOCK, Ids, ScriptedModel, counting, foresight_script, steps_of, tokens_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.draft_model import DraftModel, DraftModels
from mars_runtime.decoders.prefix_cache import BlockPrefixCache
from mars_runtime.errors import DecodeError
from mars_runtime.runs.events import Prefill, RowStep, Step
from mars_runtime.settings import (
    MASK_LAYOUTS,
    MASKED,
    MAX_FED,
    METRICS,
    TAU_POLICIES,
    DecodeSettings,
)

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
COUNT = DecodeSettings(tau=0.5, max_new_tokens=8)
LOSSLESS = replace(COUNT, tau=0.0, lossless=True)
WAYS = {
    "AR": replace(COUNT, method="ar"),
    "Jacobi": replace(COUNT, method="jacobi"),
    "MARS": COUNT,
    "lossless": LOSSLESS,
    "groups": replace(LOSSLESS, mask_layout="every"),
    "groups and lookup": replace(LOSSLESS, mask_layout="every", lookup=True),
    **{
        f"speculative, masked {masked}": replace(COUNT, method="speculative", masked=masked)
        for masked in MASKED
    },
}


def run(script, prompts, settings, ids=IDS):
    draft = DraftModel(ScriptedModel(counting), ids, 8)
    models = DraftModels(lambda name: draft, 8)
    model = ScriptedModel(script)
    return list(decode(model, ids, prompts, lambda: settings, draft_models=models))


def test_every_emitted_token_comes_from_a_step() -> None:
    events = run(counting, [[3, 4, 5]], COUNT)
    assert events[0] == Prefill(2, cache_bytes=3 + 8 + MAX_FED)  # a byte a slot
    steps = steps_of(events)
    assert [step.accepted for step in steps] == [(6, 7, 8, 9), (10, 11, 12, 13)]
    assert [(step.cursor, step.num_pending, step.num_fed) for step in steps] == [
        (2, 1, 4),
        (3, 4, 7),
    ]
    assert [step.stop for step in steps] == ["block", "limit"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
def test_the_limit_is_met_exactly_and_nothing_is_fed_in_vain(block_size: int, way: str) -> None:
    for limit in (1, 2, 3, 7, 11):
        settings = replace(WAYS[way], max_new_tokens=limit, block_size=block_size)
        events = run(partial(counting, wrong=9), [[3, 4, 5, 3, 4]], settings)
        steps = steps_of(events)
        if settings.is_verified or settings.method == "ar":
            assert tokens_of(events) == [[3 + (2 + i) % 13 for i in range(limit)]]
        assert len(tokens_of(events)[0]) == limit
        assert steps[-1].stop == "limit"
        assert all(step.start + len(step.proposals) <= limit for step in steps)
        for step in steps:  # one token behind the drafts is AR's; a look-up may offer more
            num_offered = 0 if step.looked_up else len(step.drafts)
            assert step.start + len(step.accepted) + num_offered < limit + (not num_offered)
        assert all(step.num_fed <= MAX_FED for step in steps)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", range(1, 8))
def test_nothing_comes_after_eos_at_any_position(place: int, way: str) -> None:
    ids = Ids(eos_ids=frozenset({4 + place}))
    events = run(counting, [[3, 4]], replace(WAYS[way], max_new_tokens=50), ids)
    assert tokens_of(events) == [list(range(5, 5 + place))]
    assert steps_of(events)[-1].stop == "eos"
    assert all(step.drafts[:-1].count(4 + place) == 0 for step in steps_of(events))


def test_nan_is_a_sentence_and_names_the_rows_and_the_rest_goes_on() -> None:
    def script(prefix: tuple[int, ...]) -> list[float]:
        return [math.nan] * 18 if prefix[0] == 9 and len(prefix) > 3 else counting(prefix)

    batch = CursorBatch(ScriptedModel(script), IDS, 2, 40)
    plain = replace(COUNT, method="ar")
    batch.add(7, [9], lambda: plain)
    batch.add(8, [3], lambda: plain)
    emitted = []
    for _ in range(3):
        emitted += [row for row in batch.step().rows if row.row == 8]
    with pytest.raises(DecodeError, match="not finite numbers") as caught:
        batch.step()
    assert caught.value.rows == (7,)
    batch.drop(7)
    while batch.rows:
        emitted += batch.step().rows
    assert [token for row in emitted for token in row.accepted] == list(range(4, 12))


@pytest.mark.parametrize(
    ("prompt", "limit", "sentence"),
    [
        ([], 4, "prompt is empty"),
        ([3, 18], 4, "outside 0 to 17"),
        ([-1], 4, "outside 0 to 17"),
        ([3] * 509, 4, "this model supports only 512 in total"),
    ],
)
def test_prompts_that_cannot_be_served_are_refused_at_once(prompt, limit, sentence) -> None:
    settings = DecodeSettings(max_new_tokens=limit)
    with pytest.raises(DecodeError, match=sentence):
        decode(ScriptedModel(counting), IDS, [prompt], lambda: settings)


def test_a_full_batch_and_a_short_cache_say_so() -> None:
    batch = CursorBatch(ScriptedModel(counting), IDS, 1, 10)
    with pytest.raises(DecodeError, match="each row of this batch fits only 10 in total"):
        batch.add(0, [3, 4, 5], lambda: COUNT)
    batch.add(0, [3, 4], lambda: COUNT)
    with pytest.raises(DecodeError, match="rows are in use"):
        batch.add(1, [3, 4], lambda: COUNT)
    with pytest.raises(KeyError):
        batch.drop(5)


def test_a_changed_setting_acts_on_the_very_next_forward() -> None:
    current = SimpleNamespace(settings=replace(COUNT, method="ar", max_new_tokens=40))
    changes = {3: (5, 40), 5: (2, 40), 7: (4, 20), 8: (4, 1)}  # forwards done: B and limit
    sizes = []
    for event in decode(ScriptedModel(counting), IDS, [[3]], lambda: current.settings):
        if isinstance(event, Step):
            sizes.append(len(event.rows[0].accepted))
            assert event.rows[0].settings is current.settings
            if len(sizes) in changes:
                block_size, limit = changes[len(sizes)]
                current.settings = replace(COUNT, block_size=block_size, max_new_tokens=limit)
    assert sizes == [1, 1, 1, 5, 5, 2, 2, 3]


ROW = st.tuples(
    st.lists(st.integers(3, 5), min_size=1, max_size=9),
    st.builds(
        DecodeSettings,
        method=st.sampled_from(("ar", "mars", "jacobi")),
        tau=st.sampled_from((0.0, 0.3, 0.7, 0.95, 1.0)),
        block_size=st.integers(1, 16),
        metric=st.sampled_from(METRICS),
        lossless=st.booleans(),
        max_new_tokens=st.integers(1, 24),
        temperature=st.sampled_from((0.0, 0.0, 0.8)),
        seed=st.integers(0, 3),
        mask_layout=st.sampled_from(MASK_LAYOUTS),
        lookup=st.booleans(),
        repetition_penalty=st.sampled_from((1.0, 1.3)),
        tau_policy=st.sampled_from(TAU_POLICIES),
    ),
)


def fed_alone(step: RowStep) -> RowStep:
    return replace(step, num_fed=0, row=0)


@profile(max_examples=40)
@given(st.integers(0, 10_000), st.lists(ROW, min_size=3, max_size=6), st.data())
def test_rows_that_join_are_read_sit_out_and_leave_change_no_other_row(seed, rows, data) -> None:
    model = ScriptedModel(foresight_script(seed))
    store = BlockPrefixCache(KEPT_BLOCK, 1, 20) if data.draw(st.booleans()) else None
    capacity = 9 + 24  # a full row still has slots to write ahead
    batch = CursorBatch(model, IDS, 3, capacity, prefix_cache=store)
    waiting, events, left, unread = list(enumerate(rows)), [], set(), {}
    while waiting or batch.rows:
        while waiting and len(batch.rows) < 3 and (not batch.rows or data.draw(st.booleans())):
            number, (prompt, settings) = waiting.pop()
            batch.join(number, prompt, lambda settings=settings: settings)
            unread[number] = True
        for number in [row for row in batch.rows if unread[row]][:1]:
            unread[number] = bool(batch.prefill(number, data.draw(st.integers(1, 9))))
        ready = [row for row in batch.rows if not unread[row]]
        chosen = data.draw(st.lists(st.sampled_from(ready), unique=True)) if ready else []
        if chosen:
            events.append(batch.step(chosen))
            assert sorted(row.row for row in events[-1].rows) == sorted(chosen)
        if batch.rows and data.draw(st.integers(0, 5)) == 0:
            number = data.draw(st.sampled_from(batch.rows))
            left.add(number)
            batch.drop(number)
        batch.release_ended()
    for number, (prompt, settings) in enumerate(rows):
        alone = steps_of(decode(model, IDS, [prompt], lambda settings=settings: settings))
        actual_steps = [fed_alone(step) for step in steps_of(events, number)]
        assert actual_steps == [fed_alone(step) for step in alone[: len(actual_steps)]]
        assert number in left or len(actual_steps) == len(alone)


@given(seed=st.integers(0, 10_000), rows=st.lists(ROW, min_size=1, max_size=4))
def test_laws_hold_for_any_script(seed: int, rows: list[tuple[list[int], DecodeSettings]]) -> None:
    """Laws 3 and 4; ways to draft change nothing where nothing is verified."""
    script, prompts = foresight_script(seed), [prompt for prompt, _ in rows]
    settings = replace(rows[0][1], method="mars", lossless=False, tau_policy="fixed")
    plain = [tokens_of(run(script, [p], replace(settings, method="ar")))[0] for p in prompts]
    lossless = run(script, prompts, replace(settings, lossless=True))
    assert tokens_of(lossless, len(prompts)) == plain
    events = run(script, prompts, settings)
    bare = replace(settings, mask_layout="last", lookup=False)
    undrafted = run(script, prompts, bare)
    for row, prompt in enumerate(prompts):
        steps = steps_of(events, row)
        assert [replace(step, settings=bare) for step in steps] == steps_of(undrafted, row)
        tokens = list(prompt)
        for step in steps:
            proposed = [slot.token for slot in step.proposals[: len(step.accepted)]]
            assert 1 <= len(step.accepted) <= settings.block_size
            assert proposed == list(step.accepted)
            if settings.temperature == 0 and settings.repetition_penalty == 1:
                first = run(script, [tokens], DecodeSettings(method="ar", max_new_tokens=1))
                assert step.accepted[0] == tokens_of(first)[0][0]
            tokens += step.accepted
        new = tokens[len(prompt) :]
        assert all(3 <= token < 16 or token == 2 for token in new)
        assert 2 not in new[:-1]
        assert len(new) <= settings.max_new_tokens
        assert steps[-1].stop == ("eos" if new[-1] == 2 else "limit")
