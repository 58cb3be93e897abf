"""Choosing drafts and masks: by hand, by simulation, and what is drafted of made-up texts."""

from __future__ import annotations

import operator
from dataclasses import replace
from itertools import accumulate, combinations

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st
from made_up_texts import AUTO, CHAT, CURVES, MATHS, MOST_MASKS, NOTHING, SURE, Text, write

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.drafting import (
    AR_POLICY,
    INITIAL_BUDGET,
    LEAST_SHARE,
    MAX_BUDGET,
    MIN_SPEED,
    Calibration,
    Drafter,
    DraftPolicy,
    FeedLimits,
    TimeBudget,
    best_candidate,
    chains_of,
    rate_of,
)
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import AUTO_OBJECTIVES, MASK_LAYOUTS, MAX_FED, AutoObjective, MaskLayout
from tests.methods import decode_as

IDS = Ids()
NO_MASK = Ids(mask_id=None, forbidden_ids=frozenset({0}))


def test_chances_follow_what_came_of_predictions() -> None:
    actual = Calibration()
    group = [Proposal(5, 0.99, ()), Proposal(6, 0.3, ())]
    ((_, sure), (_, unsure)), _ = chains_of(group, [], 0)
    assert sure != unsure
    before = actual.chances([(5, sure), (6, unsure)])
    assert before == pytest.approx([0.9, 0.9 * 0.3])
    for _ in range(50):
        actual.store([(5, sure), (6, unsure), (7, unsure)])
        actual.observe([5, 9])  # the third is not judged: it continued another text
        actual.observe([7])
    (right,) = actual.chances([(1, sure), (2, unsure)])  # both are not worth a thought any more
    assert right > 0.97


def test_a_prediction_waits_until_its_place_is_written() -> None:
    """One token per forward: the third of three is judged three forwards later."""
    slow, fast = Calibration(), Calibration()
    _, chain = chains_of([], [5, 6, 7], 2)
    for calibration, parts in ((slow, [[5], [6], [8]]), (fast, [[5, 6, 8]])):
        calibration.store(chain)
        for part in parts:
            calibration.observe(part)
    assert slow.chances(chain) == fast.chances(chain)
    assert slow.chances(chain)[0] > Calibration().chances(chain)[0]
    assert slow.chances(chain[1:])[0] < 0.87


def test_a_draft_is_fed_if_its_chance_pays_for_it_by_hand() -> None:
    curve = Curve([1.0, 1.2, 1.4, 1.6, *[9.0] * 60])
    actual = best_candidate([0.5, 0.3, 0.1], AR_POLICY, curve, may_branch=True)
    assert actual.feed == FeedLimits(2, 0, ())
    assert actual.value == pytest.approx(0.8 - 1.4)
    assert actual.gain == pytest.approx(0.8)
    # At a rate of 2 the same positions have to bring twice as much.
    assert (
        best_candidate([0.5, 0.3], DraftPolicy(0, 2.0, 0.0), curve, may_branch=True).feed.num_drafts
        == 1
    )
    # Proposals for the next forward are worth 0.5 here: a mask after the draft earns that if the
    # draft is right, a mask after each token always, for one position more.
    policy = DraftPolicy(1, 1.0, 0.5)
    assert best_candidate([0.9], policy, curve, may_branch=True).feed == FeedLimits(1, 1, (1,))
    assert best_candidate([0.45], policy, curve, may_branch=True).feed == FeedLimits(1, 1, (0, 1))
    assert best_candidate([0.45], policy, curve, may_branch=False).feed == FeedLimits(0, 1, (0,))
    # If a third token costs little and a fourth much, the mask goes where the draft is likely to be
    # wrong: 0.3 + 0.7 / 2 for the 1.25 of three tokens.
    steep = Curve([1.0, 1.2, 1.25, 1.6, *[9.0] * 60])
    actual = best_candidate([0.3], policy, steep, may_branch=True)
    assert actual.feed == FeedLimits(1, 1, (0,))
    assert actual.value == pytest.approx(0.65 - 1.25)
    assert actual.continues == pytest.approx(0.7)


@given(
    st.lists(st.floats(0.05, 1.0), max_size=4),
    st.lists(st.floats(0.0, 0.5), min_size=24, max_size=24),
    st.integers(0, 3),
    st.floats(1.0, 2.5),
    st.floats(0.0, 1.5),
)
def test_no_way_to_feed_is_better_than_the_best(
    steps: list[float], costs: list[float], masks: int, rate: float, worth: float
) -> None:
    """Compare with all numbers of drafts and all sets of tokens with a group after them."""
    chances = list(accumulate(steps, operator.mul))
    plain = list(accumulate(costs, initial=1.0))
    left = [1.0, *chances, 0.0]
    values = [
        sum(chances[:count])
        - rate * (plain[count + len(roots) * masks] + (0.1 if roots else 0.0))
        + worth * sum(left[root] - (left[root + 1] if root < count else 0.0) for root in roots)
        for count in range(len(chances) + 1)
        for number in range((count + 2) if masks else 1)
        for roots in combinations(range(count + 1), number)
    ]
    actual = best_candidate(
        chances, DraftPolicy(masks, rate, worth), Curve(plain, 0.1), may_branch=True
    )
    assert actual.value == pytest.approx(max(values))


def test_masks_cost_what_an_adapter_adds_and_drafts_alone_do_not() -> None:
    plain = [1.0, 1.1, 1.2, 1.3, *[9.0] * 60]
    policy = DraftPolicy(1, 1.0, 0.3)
    assert best_candidate([], policy, Curve(plain), may_branch=True).feed.num_masks == 1
    assert best_candidate([], policy, Curve(plain, 0.25), may_branch=True).feed.num_masks == 0
    dear = best_candidate([0.9], policy, Curve(plain, 0.25), may_branch=True)
    assert dear.feed == FeedLimits(1, 0, ())
    assert dear.value == pytest.approx(0.9 - 1.1)
    actual = rate_of(1, [([0.5], [])], Curve(plain, 0.1), may_branch=True, rate=1.15)
    assert actual == pytest.approx(1.5 / 1.4)


def test_rates_by_hand() -> None:
    curve = Curve([1.0, 1.1, 1.2, 1.3, *[9.0] * 60])
    samples = [([0.5], [])]
    assert rate_of(0, samples, curve, may_branch=True, rate=1.0) == 1.0
    # [token, draft, mask, mask] each time: 1.5 tokens for 1.3.
    actual = rate_of(1, samples, curve, may_branch=True, rate=1.15)
    assert actual == pytest.approx(1.5 / 1.3)
    # At a higher rate the draft is not fed, and so many masks bring nothing.
    assert rate_of(1, samples, curve, may_branch=True, rate=9.0) == pytest.approx(1.0 / 1.1)
    # One group: half of the forwards lose it, and the next one, [token, mask], starts again.
    actual = rate_of(1, samples, curve, may_branch=False, rate=1.12)
    assert actual == pytest.approx(2.0 / (1.2 + 0.5 * 1.1))
    # What was found in the text needs no masks.
    assert rate_of(0, [([], [0.9])], curve, may_branch=True, rate=1.0) == pytest.approx(1.9 / 1.1)


def test_what_was_seen_holds_under_its_own_settings() -> None:
    drafter = Drafter(AUTO, MOST_MASKS)
    assert drafter.fits(replace(AUTO, max_new_tokens=9, seed=4))
    for change in (
        *({"tau": 0.5}, {"metric": "margin"}, {"mask_layout": "last"}, {"lookup": True}),
        {"auto_objective": "passes"},
    ):
        assert not drafter.fits(replace(AUTO, **change))


def costs(curve: str) -> ForwardCosts:
    return ForwardCosts(MOST_MASKS + 1, {1: tuple(CURVES[curve]), 4: tuple(CURVES[curve])})


@given(
    seed=st.integers(0, 10**6),
    curve=st.sampled_from(sorted(CURVES)),
    tau=st.sampled_from([0.0, 0.5, 0.9]),
    num_rows=st.integers(1, 3),
    mask_layout=st.sampled_from(MASK_LAYOUTS),
    auto_objective=st.sampled_from(AUTO_OBJECTIVES),
    lookup=st.booleans(),
    ids=st.sampled_from([IDS, NO_MASK]),
)
def test_law_3_holds_for_any_choice(
    seed: int,
    curve: str,
    tau: float,
    num_rows: int,
    mask_layout: MaskLayout,
    auto_objective: AutoObjective,
    lookup: bool,
    ids: Ids,
) -> None:
    script = foresight_script(seed, eos_share=0.01)
    prompts = [[3 + row, 4, 5, 3 + row, 4] for row in range(num_rows)]
    settings = replace(
        AUTO,
        tau=tau,
        mask_layout=mask_layout,
        auto_objective=auto_objective,
        lookup=lookup,
        max_new_tokens=50,
    )
    plain = list(decode_as("ar", ScriptedModel(script), ids, prompts, lambda: settings))
    actual = list(decode(ScriptedModel(script), ids, prompts, lambda: settings, costs(curve)))
    assert tokens_of(actual, num_rows) == tokens_of(plain, num_rows)
    for row in range(num_rows):
        for step in steps_of(actual, row):
            assert step.num_fed <= MAX_FED
            assert mask_layout == "every" or not step.groups
            assert lookup or not step.looked_up


def counting(prefix: tuple[int, ...]) -> list[float]:
    """Counts 3, 4 ... 15, 3 ...; masks know nothing."""
    return peaked(3 + (prefix[-1] - 2) % 13, 30.0) if prefix[-1] != 1 else peaked(3, 1.0)


def test_where_the_text_repeats_itself_masks_are_left_out() -> None:
    settings = replace(AUTO, lookup=True)
    events = list(decode(ScriptedModel(counting), IDS, [[3]], lambda: settings, costs("gentle")))
    steps = steps_of(events)
    late = [step for step in steps if step.start > 60]
    assert sum(len(step.accepted) for step in late) / len(late) > 8
    assert all(step.looked_up for step in late[:-1])
    assert sum(step.num_fed - step.num_pending for step in late) < len(late)


def test_the_step_says_what_was_fed() -> None:
    script = foresight_script(1, eos_share=0.0)
    steps = steps_of(decode(ScriptedModel(script), IDS, [[3]], lambda: AUTO, costs("flat")))
    assert any(step.groups for step in steps)
    for step in steps:
        assert step.settings is AUTO
        sizes = step.groups or (step.num_fed - step.num_pending,)
        assert step.num_fed == step.num_pending + sum(sizes)
        assert step.block_size == max(sizes) + 1


def test_rows_of_a_batch_choose_for_themselves() -> None:
    """One text is predictable and one is not; each row writes what it writes on its own."""
    settings = replace(AUTO, max_new_tokens=120)

    def script(prefix: tuple[int, ...]) -> list[float]:
        return counting(prefix) if prefix[0] == 3 else foresight_script(5, eos_share=0.0)(prefix)

    batch = CursorBatch(ScriptedModel(script), IDS, 2, 160, costs("gentle"))
    for number, prompt in enumerate([[3], [4]]):
        batch.add(number, prompt, lambda: settings)
    tokens: dict[int, list[int]] = {0: [], 1: []}
    num_steps = {0: 0, 1: 0}
    while batch.rows:
        for step in batch.step().rows:
            tokens[step.row] += step.accepted
            num_steps[step.row] += 1
    for number, prompt in enumerate([[3], [4]]):
        plain = decode_as("ar", ScriptedModel(script), IDS, [prompt], lambda: settings)
        assert tokens[number] == tokens_of(plain)[0]
    assert num_steps[1] < 100 < num_steps[0]


@pytest.mark.parametrize(
    ("curve", "chances", "least"),
    [
        ("flat", CHAT, 1.3),
        ("flat", MATHS, 1.55),
        ("flat", SURE, 4.5),
        ("gentle", CHAT, 1.15),
        ("gentle", MATHS, 1.3),
        ("gentle", SURE, 3.0),
        ("cliff", CHAT, 1.15),
        ("cliff", SURE, 2.0),
    ],
)
def test_it_comes_near_the_best_fixed_choice(
    curve: str, chances: list[float], least: float
) -> None:
    cost, _ = write(Drafter(AUTO, MOST_MASKS), Text(chances), CURVES[curve], 1500)
    assert 1500 / cost > least


def test_groups_are_worth_more_than_one_group() -> None:
    costs = {
        mask_layout: write(
            Drafter(replace(AUTO, mask_layout=mask_layout), MOST_MASKS),
            Text(MATHS),
            CURVES["flat"],
            1500,
        )[0]
        for mask_layout in MASK_LAYOUTS
    }
    assert costs["every"] < costs["last"]


def test_a_probe_finds_that_the_text_has_changed() -> None:
    drafter, curve = Drafter(AUTO, MOST_MASKS), CURVES["gentle"]
    write(drafter, Text(NOTHING), curve, 400)
    cost, _ = write(drafter, Text(SURE), curve, 600)
    assert 600 / cost > 1.5
    cost, _ = write(drafter, Text(NOTHING), curve, 600)
    assert 600 / cost > 0.96


def test_part_of_a_cost_by_hand() -> None:
    actual = Curve([1.0, 1.4, 3.0], 0.2).at(0.5)
    assert actual.plain == pytest.approx([1.0, 1.2, 2.0])
    assert actual.masks == pytest.approx(0.1)


def test_the_reserve_of_fewest_passes_by_hand() -> None:
    budget = TimeBudget()
    assert budget.share == pytest.approx(1.0 - INITIAL_BUDGET / MAX_BUDGET)
    for _ in range(18):  # AR's own steps, at 0.9 of the pace that is asked for
        budget.spend(1.0)
        budget.earn(1)
    assert budget.share == pytest.approx(
        1.0 - (INITIAL_BUDGET + 18 * (1 / MIN_SPEED - 1)) / MAX_BUDGET
    )
    budget.earn(100)  # a fast stretch pays for no slow one later
    assert budget.share == LEAST_SHARE
    budget.spend(MAX_BUDGET)
    assert budget.share == 1.0
    budget.spend(5.0)
    assert budget.share == 1.0


@pytest.mark.parametrize("curve", CURVES)
def test_fewest_passes_cost_at_most_a_tenth_of_the_speed(curve: str) -> None:
    """By costs written down by hand: fewer passes than least time needs, and the pace held."""
    passes = dict.fromkeys(AUTO_OBJECTIVES, 0)
    for auto_objective in AUTO_OBJECTIVES:
        for chances in (NOTHING, CHAT, MATHS, SURE):
            drafter = Drafter(replace(AUTO, auto_objective=auto_objective), MOST_MASKS)
            cost, num_forwards = write(drafter, Text(chances), CURVES[curve], 1500)
            assert 1500 / cost > MIN_SPEED - 0.005
            passes[auto_objective] += num_forwards
    assert passes["passes"] < 0.97 * passes["time"]


def test_the_pace_is_held_where_forwards_cost_more_than_was_measured() -> None:
    """Measured at a lucky moment, further tokens seem to cost half of what runs then find."""
    real = [1.0, *(1.6 * cost for cost in CURVES["gentle"][1:])]
    speeds = {}
    for hears in (False, True):
        known = ForwardCosts(8, {1: tuple(CURVES["gentle"])}, seconds=0.01 if hears else 0.0)
        for turn in range(20):  # as in a race: plain AR_POLICY, and a run that drafts
            slow = 0.02 if turn < 10 else 0.05  # the machine is busy, for both
            known.record_time(1, 0, slow)
            known.record_time(4, 3, slow * real[3])
        for _ in range(99):  # with a single run, the machine's share of the time is unknown
            known.record_time(4, 3, 0.5)
        assert known.curve(1).of(4, 3) == pytest.approx(
            real[3] if hears else known.rho[1][3], rel=0.01
        )
        drafter, scale = Drafter(replace(AUTO, auto_objective="passes"), MOST_MASKS), 0.5 / real[3]
        cost, _ = write(drafter, Text(CHAT), [scale * second for second in real], 1500, known)
        speeds[hears] = 1500 * scale / cost
    assert speeds[False] < 0.8
    assert speeds[True] > MIN_SPEED - 0.01


@pytest.mark.parametrize("chances", [NOTHING, CHAT, MATHS, SURE])
@pytest.mark.parametrize("dearness", [0.3, 1.0, 5.0])
def test_least_time_goes_by_what_forwards_take_and_not_by_what_was_measured(
    chances: list[float], dearness: float
) -> None:
    gentle = Curve(CURVES["gentle"])
    real = gentle.at(dearness).plain
    best, _ = write(Drafter(AUTO, MOST_MASKS), Text(chances), real, 3000)
    costs = ForwardCosts(8, {1: tuple(gentle.plain)}, seconds=1.0)
    cost, _ = write(Drafter(AUTO, MOST_MASKS), Text(chances), real, 3000, costs)
    assert best / cost > 0.96


def test_company_that_comes_and_goes_is_followed_within_a_few_dozen_steps() -> None:
    """Each further position costs a seventeenth of a token, then two fifths of one, and all take
    twice as long; then as before. No setting changes."""
    costs = ForwardCosts(8, {1: tuple(CURVES["gentle"])}, seconds=1.0)
    drafter, text = Drafter(AUTO, MOST_MASKS), Text(CHAT)
    alone, _ = write(drafter, text, CURVES["gentle"], 600, costs)
    assert 600 / alone > 1.15
    crowded = [2.0 * cost for cost in CURVES["steep"]]
    write(drafter, text, crowded, 60, costs)  # to find out
    cost, forwards = write(drafter, text, crowded, 600, costs)
    assert 600 * 2.0 / cost > 0.96
    assert forwards > 540  # drafting has stopped
    write(drafter, text, CURVES["gentle"], 250, costs)  # half a second of the chat model
    again, _ = write(drafter, text, CURVES["gentle"], 600, costs)
    assert alone / again > 0.95


def test_the_parts_of_a_step_time_are_separated_as_by_hand() -> None:
    """One token takes twice as long as before, and further ones three times as much in
    comparison.
    """
    costs = ForwardCosts(4, {1: (1.0, 1.1, 1.2, 1.3)}, seconds=0.01, masks={1: 0.1})
    for _ in range(200):
        costs.record_time(1, 0, 0.02)
        costs.record_time(4, 3, 0.02 * (1.0 + 3.0 * 0.4))
        costs.record_time(2, 0, 0.02 * (1.0 + 3.0 * 0.1))
    curve = costs.curve(1)
    assert curve.plain[:4] == pytest.approx([1.0, 1.3, 1.6, 1.9], abs=0.02)
    assert curve.masks == pytest.approx(0.3, abs=0.01)
    for _ in range(200):  # of one token only: the relative cost of others is not forgotten
        costs.record_time(1, 0, 0.05)
    assert costs.curve(1).plain[3] == pytest.approx(1.9, abs=0.03)


def test_where_least_time_drafts_nothing_fewest_passes_do() -> None:
    """Costs at which masks don't pay on everyday text, and a text with more predictable tokens."""
    counts = {
        auto_objective: write(
            Drafter(replace(AUTO, auto_objective=auto_objective), MOST_MASKS),
            Text(CHAT),
            CURVES["steep"],
            400,
        )[1]
        for auto_objective in AUTO_OBJECTIVES
    }
    assert 400 / counts["time"] < 1.04
    assert 400 / counts["passes"] > 1.12
