"""A draft model next to a batch, on scripted models: the number of forwards of each, and faults."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from helpers import Ids, ScriptedModel, counting, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.draft_model import DraftModel, DraftModels
from mars_runtime.errors import DecodeError
from mars_runtime.settings import MASK_LAYOUTS, MASKED, DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
AR_ENDS = DecodeSettings(
    "speculative", tau=0.5, block_size=3, max_new_tokens=12, masked="none", mask_layout="every"
)


def stuttering(prefix: tuple[int, ...]) -> list[float]:
    """Never predicts what ``counting`` predicts."""
    return peaked(3 + (prefix[-1] - 3 + 5) % 13, 30.0)


def models(script, block_size=8, ids=IDS):
    return DraftModels(lambda name: DraftModel(ScriptedModel(script), ids, block_size), 8)


def run(script, settings, prompts=([3, 4],), draft=counting, ids=IDS, block_size=8):
    speculation = models(draft, block_size, ids)
    target = ScriptedModel(script)
    return list(decode(target, ids, prompts, lambda: settings, draft_models=speculation))


def test_a_draft_that_is_always_right_gives_k_and_one_token_per_forward_of_the_target() -> None:
    steps = steps_of(run(counting, AR_ENDS))
    assert [step.accepted for step in steps] == [(5,), (6, 7, 8, 9), (10, 11, 12, 13), (14, 15, 3)]
    assert [step.guessed for step in steps] == [(6, 7, 8), (10, 11, 12), (14, 15), ()]
    assert [step.num_draft_forwards for step in steps] == [3, 3, 2, 0]
    assert [(step.cursor, step.num_pending) for step in steps] == [(1, 1), (2, 4), (6, 4), (10, 3)]
    assert [step.stop for step in steps] == ["block", "block", "block", "limit"]


def test_a_draft_that_is_always_wrong_costs_forwards_and_no_token() -> None:
    steps = steps_of(run(counting, AR_ENDS, draft=stuttering))
    assert [len(step.accepted) for step in steps] == [1] * 12
    assert {step.stop for step in steps[1:-1]} == {"mismatch"}
    assert steps[5].num_draft_forwards == 3


def test_a_draft_with_masks_drafts_several_tokens_per_forward_of_its_own() -> None:
    steps = steps_of(run(counting, replace(AR_ENDS, masked="draft", block_size=5)))
    assert [(len(step.guessed), step.num_draft_forwards) for step in steps][:2] == [(5, 1), (4, 1)]
    few = steps_of(run(counting, replace(AR_ENDS, masked="draft", block_size=5), block_size=2))
    assert few[0].num_draft_forwards == 3  # two at a time


def test_a_draft_forgets_the_tokens_that_were_rejected() -> None:
    """It errs after 9, and wherever its text does not count. The target drafts one token."""

    def careful(prefix: tuple[int, ...]) -> list[float]:
        is_counting = all(then == 3 + (last - 2) % 13 for last, then in pairwise(prefix))
        return counting(prefix) if is_counting and prefix[-1] != 9 else stuttering(prefix)

    def near(prefix: tuple[int, ...]) -> list[float]:
        return peaked(3, 0.1) if prefix[-2:] == (1, 1) else counting(prefix)

    way = replace(AR_ENDS, masked="target", block_size=7, max_new_tokens=14)
    steps = steps_of(run(near, way, draft=careful))
    assert [len(step.accepted) for step in steps] == [1, 5, 8]
    assert [step.stop for step in steps] == ["threshold", "mismatch", "limit"]


@settings(max_examples=40)
@given(
    seeds=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    masked=st.sampled_from(MASKED),
    mask_layout=st.sampled_from(MASK_LAYOUTS),
    block_size=st.integers(1, 16),
    tau=st.sampled_from([0.0, 0.3, 0.9]),
    lookup=st.booleans(),
)
def test_the_text_is_always_ars(seeds, masked, mask_layout, block_size, tau, lookup) -> None:
    prompts = [[3, 4, 5], [9], [7, 3, 8, 8, 4]]
    plain = DecodeSettings("ar", max_new_tokens=24)
    masks = {"masked": masked, "mask_layout": mask_layout, "lookup": lookup}
    speculative = replace(plain, method="speculative", tau=tau, block_size=block_size, **masks)
    target, draft = (foresight_script(seed) for seed in seeds)
    wanted = tokens_of(decode(ScriptedModel(target), IDS, prompts, lambda: plain), 3)
    assert tokens_of(run(target, speculative, prompts, draft), 3) == wanted


def test_a_draft_that_fails_leaves_every_row_as_it_was() -> None:
    broken = {"now": False}

    def failing(prefix: tuple[int, ...]) -> list[float]:
        return [math.nan] * 18 if broken["now"] and prefix[0] == 7 else counting(prefix)

    batch = CursorBatch(ScriptedModel(counting), IDS, 2, 32, draft_models=models(failing))
    batch.add(4, [3, 4], lambda: AR_ENDS)
    batch.add(9, [7, 8], lambda: AR_ENDS)
    first = batch.step()
    broken["now"] = True
    with pytest.raises(DecodeError) as caught:
        batch.step()
    assert caught.value.rows == (9,)
    batch.drop(9)
    second = batch.step()
    assert [row.accepted for row in (first.rows[0], second.rows[0])] == [(5,), (6, 7, 8, 9)]


def test_a_draft_that_cannot_be_had_ends_its_own_row_alone() -> None:
    def find(name: str) -> DraftModel:
        raise DecodeError("There is none.")

    batch = CursorBatch(ScriptedModel(counting), IDS, 2, 32, draft_models=DraftModels(find, 8))
    batch.add(1, [3], lambda: DecodeSettings("ar", max_new_tokens=5))
    with pytest.raises(DecodeError) as caught:
        batch.add(2, [3, 4], lambda: AR_ENDS)
    assert caught.value.rows == (2,)


def test_a_row_that_leaves_frees_its_place_in_the_draft_model() -> None:
    batch = CursorBatch(ScriptedModel(counting), IDS, 1, 32, draft_models=models(counting))
    for number in range(4):
        batch.add(number, [3 + number, 4], lambda: AR_ENDS)
        collected: list[int] = []
        while batch.rows:
            collected += batch.step().rows[0].accepted
            if number == 1:
                batch.drop(number)
        assert collected == [5, *[3 + (3 + place) % 13 for place in range(len(collected) - 1)]]
