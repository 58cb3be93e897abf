"""Groups of masks after every pending token, and drafts looked up in the text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from helpers import Ids, ScriptedModel, counting, foresight_script, steps_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.lookup import Lookup
from mars_runtime.decoders.methods import MAX_DRAFTS
from mars_runtime.decoders.plan import FeedLimits, group_sizes
from mars_runtime.runs.events import Event, RowStep
from mars_runtime.settings import MASK_LAYOUTS, MAX_FED, METRICS, DecodeSettings
from tests import slow_twin
from tests.slow_twin import looked_up

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
BOLD = DecodeSettings(tau=0.0, block_size=3, lossless=True, mask_layout="every", max_new_tokens=40)


def run(script, prompts, settings, ids=IDS) -> list[Event]:
    return list(decode(ScriptedModel(script), ids, prompts, lambda: settings))


def test_a_refused_draft_costs_no_proposal() -> None:
    """After 6 the masks say 7 and, wrongly, 15: the group behind 7 has 9 and 10 all the same."""
    model = ScriptedModel(partial(counting, wrong=8))
    events = list(decode(model, IDS, [[5]], lambda: BOLD))
    steps = steps_of(events)
    assert [fed[0] for fed in model.forwards[:4]] == [
        [5, 1, 1],
        [6, 7, 15, 1, 1, 1, 1, 1, 1],
        [8, 9, 10, 1, 1, 1, 1, 1, 1],
        [11, 12, 13, 1, 1, 1, 1, 1, 1],
    ]
    assert [step.accepted for step in steps[:4]] == [(6,), (7, 8), (9, 10, 11), (12, 13, 14)]
    assert [step.groups for step in steps[:4]] == [(), (2, 2, 2), (2, 2, 2), (2, 2, 2)]
    assert [step.drafts for step in steps[:3]] == [(7, 15), (9, 10), (12, 13)]
    assert steps[1].stop == "mismatch"
    assert {(step.num_pending, step.num_fed) for step in steps[1:-3]} == {(3, 9)}
    assert [slot.token for slot in steps[1].proposals] == [7, 8, 9, 10]
    # One group, after the last draft, starts again after a rejection.
    steps = steps_of(run(partial(counting, wrong=8), [[5]], replace(BOLD, mask_layout="last")))
    assert [step.accepted for step in steps[:4]] == [(6,), (7, 8), (9,), (10, 11, 12)]


def test_no_forward_has_more_masks_than_room() -> None:
    """After 15 drafts of B = 16 there is room for three masks behind each token, not for 15."""
    feed = FeedLimits.of(replace(BOLD, block_size=16))
    for num_drafts in range(MAX_DRAFTS + 1):
        sizes = group_sizes(replace(BOLD, block_size=16), feed, 10_000, num_drafts)
        num_fed = num_drafts + 1 + sum(sizes)
        assert num_fed <= MAX_FED
        assert {*sizes} == {15} or num_fed + len(sizes) > MAX_FED


ROWS = st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=12), min_size=1, max_size=4)
LOSSLESS = st.builds(
    DecodeSettings,
    tau=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    block_size=st.sampled_from([1, 2, 3, 5, 9, 16]),
    metric=st.sampled_from(METRICS),
    lossless=st.just(True),
    max_new_tokens=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    seed=st.integers(0, 99),
    mask_layout=st.sampled_from(MASK_LAYOUTS),
    lookup=st.booleans(),
)


def bare(step: RowStep) -> RowStep:
    return replace(step, cursor=0, num_pending=0, num_fed=0)


@given(
    seed=st.integers(0, 10_000),
    prompts=ROWS,
    moves=st.lists(LOSSLESS | LOSSLESS.map(lambda s: replace(s, lossless=False)), min_size=1),
    every=st.integers(1, 3),
)
def test_every_step_equals_full_recomputation(seed: int, prompts, moves, every: int) -> None:
    script = foresight_script(seed, eos_share=0.02)
    collected = []
    for decoder in (decode, slow_twin.decode):
        current = SimpleNamespace(settings=moves[0])
        events: list[Event] = []
        for event in decoder(
            ScriptedModel(script), IDS, prompts, lambda current=current: current.settings
        ):
            events.append(event)
            current.settings = moves[len(events) // every % len(moves)]
        collected.append(
            [bare(step) for row in range(len(prompts)) for step in steps_of(events, row)]
        )
    assert collected[0] == collected[1]


def test_the_longer_of_two_proposals_is_drafted_and_named() -> None:
    prompt = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    settings = replace(BOLD, lookup=True)
    steps = steps_of(run(counting, [[*prompt, 3, 4, 5]], settings))
    assert steps[0].accepted == (6,)
    assert steps[0].looked_up == steps[0].drafts == (*prompt[4:], *prompt[:6])
    assert steps[0].num_drafted == 0
    assert steps[1].accepted == (*prompt[4:], *prompt[:7])
    assert steps[1].num_fed <= MAX_FED
    # One token that occurred before promises less than two masks.
    steps = steps_of(run(counting, [[4, 7, 3]], settings))
    assert (steps[0].looked_up, steps[0].drafts) == ((), (5, 6))


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 9), min_size=1, max_size=9),
    st.integers(1, 12),
)
def test_it_grows_in_parts_and_finds_what_looking_everywhere_finds(text, parts, at_most) -> None:
    lookup, seen = Lookup(), 0
    while seen < len(text):
        size = parts[seen % len(parts)] + 1
        lookup.extend(text[seen : seen + size])
        seen = min(seen + size, len(text))
        assert len(lookup) == seen
        assert lookup.following(at_most) == looked_up(text[:seen], at_most)
