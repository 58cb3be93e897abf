"""Groups of masks after every pending token, and drafts looked up in the text."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.drafting import Feed
from mars_runtime.decoders.lookup import Lookup
from mars_runtime.decoders.plan import group_sizes
from mars_runtime.events import Event, RowStep, Step
from mars_runtime.settings import GROUPS, MAX_FED, METRICS, DecodeSettings
from tests import slow_twin
from tests.methods import decode_as
from tests.slow_twin import looked_up

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
NO_MASK = Ids(mask_id=None, forbidden_ids=frozenset({0}))
BOLD = DecodeSettings(tau=0.0, block_size=3, lossless=True, groups="every", max_new_tokens=40)


def counting_until(wrong: int):
    """Counts 3, 4 ... 15, 3 ...; masks count on, but they take ``wrong`` for 15 when it comes."""

    def script(prefix: tuple[int, ...]) -> list[float]:
        last = max(i for i, token in enumerate(prefix) if token != IDS.mask_id)
        token = 3 + (prefix[last] - 3 + len(prefix) - last) % 13
        return peaked(15 if token == wrong and prefix[-1] == IDS.mask_id else token, 30.0)

    return script


def run(script, prompts, settings, ids=IDS) -> list[Event]:
    return list(decode(ScriptedModel(script), ids, prompts, lambda: settings))


def test_a_refused_draft_costs_no_proposal() -> None:
    """After 6 the masks say 7 and, wrongly, 15: the group behind 7 has 9 and 10 all the same."""
    model = ScriptedModel(counting_until(8))
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
    assert [slot.token for slot in steps[1].proposals] == [7, 8, 9, 10]
    # One group, after the last draft, starts anew after a refusal.
    steps = steps_of(run(counting_until(8), [[5]], replace(BOLD, groups="one")))
    assert [step.accepted for step in steps[:4]] == [(6,), (7, 8), (9,), (10, 11, 12)]


def test_what_is_fed_is_told() -> None:
    for step in steps_of(run(counting_until(8), [[5]], BOLD))[1:-3]:
        assert step.num_pending == len(step.groups) == 3
        assert step.num_fed == 9


@pytest.mark.parametrize("lookup", [False, True])
@pytest.mark.parametrize("place", range(1, 9))
def test_nothing_comes_after_eos_wherever_it_stands(place: int, lookup: bool) -> None:
    ids = Ids(eos_ids=frozenset({3 + place}))
    events = run(counting_until(0), [[3]], replace(BOLD, lookup=lookup), ids)
    assert tokens_of(events) == [list(range(4, 4 + place))]
    assert steps_of(events)[-1].stop == "eos"
    assert all(step.drafts[:-1].count(3 + place) == 0 for step in steps_of(events))


@pytest.mark.parametrize("limit", range(1, 12))
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
def test_the_limit_is_met_exactly_and_nothing_is_fed_in_vain(limit: int, block_size: int) -> None:
    settings = replace(BOLD, max_new_tokens=limit, block_size=block_size, lookup=True)
    steps = steps_of(run(counting_until(9), [[3, 4, 5, 3, 4]], settings))
    tokens = [token for step in steps for token in step.accepted]
    assert tokens == [3 + (2 + i) % 13 for i in range(limit)]
    assert steps[-1].stop == "limit"
    for step in steps:
        assert step.start + len(step.proposals) <= limit
        assert step.num_fed <= MAX_FED


@given(
    block_size=st.integers(1, 16),
    remaining=st.integers(1, 60),
    num_drafts=st.integers(0, 15),
    groups=st.sampled_from(GROUPS),
)
def test_group_sizes(block_size: int, remaining: int, num_drafts: int, groups) -> None:
    settings = replace(BOLD, block_size=block_size, groups=groups)
    num_drafts = min(num_drafts, remaining - 1)
    sizes = group_sizes(settings, Feed.of(settings), remaining, num_drafts)
    assert len(sizes) == num_drafts + 1
    assert num_drafts + 1 + sum(sizes) <= MAX_FED
    assert max(sizes) < block_size
    for place, size in enumerate(sizes):  # AR's token, what the masks foresee, AR's token
        assert size == 0 or place + 1 + size + 1 <= remaining
    if groups == "one":
        assert not any(sizes[:-1])


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
    groups=st.sampled_from(GROUPS),
    lookup=st.booleans(),
)


def bare(step: RowStep) -> RowStep:
    """Apart from how it was fed."""
    return replace(step, cursor=0, num_pending=0, num_fed=0)


@given(seed=st.integers(0, 10_000), prompts=ROWS, settings=LOSSLESS)
def test_every_step_equals_full_recomputation(seed: int, prompts, settings) -> None:
    script = foresight_script(seed, eos_share=0.02)
    found = run(script, prompts, settings)
    slow = list(slow_twin.decode(ScriptedModel(script), IDS, prompts, lambda: settings))
    plain = list(decode_as("ar", ScriptedModel(script), IDS, prompts, lambda: settings))
    assert tokens_of(found, len(prompts)) == tokens_of(plain, len(prompts))
    for row in range(len(prompts)):
        ours, theirs = steps_of(found, row), steps_of(slow, row)
        assert [bare(step) for step in ours] == [bare(step) for step in theirs]


@given(
    seed=st.integers(0, 10_000),
    rows=st.lists(st.tuples(ROWS.map(lambda rows: rows[0]), LOSSLESS), min_size=2, max_size=4),
)
def test_rows_with_settings_of_their_own_share_forwards(seed: int, rows) -> None:
    """Each as it is alone, beside rows with one group, with many and with none."""
    script = foresight_script(seed, eos_share=0.02)
    batch = CursorBatch(ScriptedModel(script), IDS, len(rows), 60)
    for number, (prompt, settings) in enumerate(rows):
        batch.add(number, prompt, lambda settings=settings: settings)
    events = []
    while batch.rows:
        events.append(batch.step())
    for number, (prompt, settings) in enumerate(rows):
        alone = steps_of(run(script, [prompt], settings))
        found = [replace(bare(step), row=0) for step in steps_of(events, number)]
        assert found == [bare(step) for step in alone]


@given(
    seed=st.integers(0, 10_000),
    moves=st.lists(LOSSLESS | LOSSLESS.map(lambda s: replace(s, lossless=False)), min_size=2),
    every=st.integers(1, 3),
)
def test_settings_that_move_touch_only_later_steps(seed: int, moves, every: int) -> None:
    script = foresight_script(seed, eos_share=0.0)
    moves = [replace(move, max_new_tokens=40, temperature=0.0, seed=0) for move in moves]
    now = SimpleNamespace(settings=moves[0])
    model, steps = ScriptedModel(script), []
    plain = tokens_of(run(script, [[3, 4, 3, 4]], replace(BOLD, method="ar")))[0]
    for event in decode(model, IDS, [[3, 4, 3, 4]], lambda: now.settings):
        if isinstance(event, Step):
            (step,) = event.rows
            steps.append(step)
            assert step.settings is now.settings
            if not step.settings.lossless or step.settings.groups == "one":
                assert step.groups == ()
            if not (step.settings.lossless and step.settings.lookup):
                assert step.looked_up == ()
            now.settings = moves[len(steps) // every % len(moves)]
    if all(move.lossless for move in moves):
        assert [token for step in steps for token in step.accepted] == plain


def test_the_longer_of_two_proposals_is_drafted_and_named() -> None:
    prompt = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    settings = replace(BOLD, lookup=True)
    steps = steps_of(run(counting_until(0), [[*prompt, 3, 4, 5]], settings))
    assert steps[0].accepted == (6,)
    assert steps[0].looked_up == steps[0].drafts == (*prompt[4:], *prompt[:6])
    assert steps[0].num_drafted == 0
    assert steps[1].accepted == (*prompt[4:], *prompt[:7])
    assert steps[1].num_fed <= MAX_FED
    # One token that occurred before promises less than two masks.
    steps = steps_of(run(counting_until(0), [[4, 7, 3]], settings))
    assert (steps[0].looked_up, steps[0].drafts) == ((), (5, 6))


def test_lookup_needs_no_mask_token() -> None:
    script, prompts = foresight_script(3, eos_share=0.0), [[3, 4, 5, 3, 4], [6, 7]]
    settings = replace(BOLD, lookup=True, block_size=8)
    counted = counting_until(0)
    for each in (script, counted):
        plain = tokens_of(run(each, prompts, replace(settings, method="ar"), NO_MASK), 2)
        assert tokens_of(run(each, prompts, settings, NO_MASK), 2) == plain
        slow = slow_twin.decode(ScriptedModel(each), NO_MASK, prompts, lambda: settings)
        assert tokens_of(slow, 2) == plain
    steps = steps_of(run(counted, [list(range(3, 16))], settings, NO_MASK))
    assert len(steps) < 12
    assert all(step.num_fed == step.num_pending for step in steps)


def test_a_batch_without_room_for_groups_was_given_some() -> None:
    """A row of full length still has slots to write ahead."""
    settings = replace(BOLD, block_size=16, lookup=True, max_new_tokens=30)
    batch = CursorBatch(ScriptedModel(counting_until(0)), IDS, 1, 32)
    batch.add(0, [3, 4], lambda: settings)
    found = []
    while batch.rows:
        found += batch.step().rows
    assert sum(len(step.accepted) for step in found) == 30


def found(text: list[int], at_most: int = 5) -> tuple[list[int], int]:
    lookup = Lookup()
    lookup.extend(text)
    return lookup.following(at_most)


def test_by_hand() -> None:
    assert found([]) == found([7]) == found([7, 8]) == found([7, 8, 9]) == ([], 0)
    assert found([7, 8, 9, 7], 2) == ([8, 9], 1)
    assert found([1, 7, 8, 3, 4, 5, 6, 9, 7, 8], 3) == ([3, 4, 5], 2)
    assert found([1, 7, 8, 3, 7, 8, 4, 2, 7, 8], 2) == ([4, 2], 2)  # the latest occurrence
    assert found([6, 7, 8, 3, 7, 8, 4, 6, 7, 8], 1) == ([3], 3)  # the longer match is older


def test_a_text_that_repeats_itself_is_taken_to_go_on_so() -> None:
    assert found([5, 6, 5, 6]) == ([5, 6, 5, 6, 5], 2)
    assert found([4] * 9) == ([4] * 5, 4)


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 9), min_size=1, max_size=9),
    st.integers(1, 12),
)
def test_it_grows_in_parts_and_finds_what_looking_everywhere_finds(
    text: list[int], parts: list[int], at_most: int
) -> None:
    lookup, seen = Lookup(), 0
    while seen < len(text):
        size = parts[seen % len(parts)] + 1
        lookup.extend(text[seen : seen + size])
        seen = min(seen + size, len(text))
        assert len(lookup) == seen
        assert lookup.following(at_most) == looked_up(text[:seen], at_most)
