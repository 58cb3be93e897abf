"""Choosing drafts and masks: by hand, by simulation, and what is drafted of made-up texts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.drafting import Averages, Drafter, Prediction, choose, combinations
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts
from mars_runtime.decoders.plan import FeedLimits, group_sizes
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import MASK_LAYOUTS, MAX_FED, DecodeSettings, MaskLayout

IDS = Ids()
NO_MASK = Ids(mask_id=None, forbidden_ids=frozenset({0}))
DEAR_MASKS = (0.0, *[0.9] * MAX_FED)


# Made-up texts with known predictability, and made-up costs of forwards.

AUTO = DecodeSettings(
    tau=0.0, block_size="auto", lossless=True, mask_layout="every", max_new_tokens=200
)
MOST_MASKS = 7
CURVES = {
    "flat": [1 + 0.02 * q for q in range(MAX_FED)],
    "gentle": [1 + 0.06 * q for q in range(MAX_FED)],
    "steep": [1 + 0.4 * q for q in range(MAX_FED)],
    "cliff": [1.0, 1.05, 1.1, 1.15, *[1.8] * 4, *[2.2] * 8, *[3.0] * 48],
}
NOTHING, CHAT, MATHS, SURE = [0.01] * 7, [0.46, 0.42, *[0.35] * 5], [0.62, *[0.5] * 6], [0.97] * 7


@dataclass
class Text:
    """A simulated text: masks predict position j with probability ``chances[j]``, with roughly
    calibrated confidence.
    """

    chances: Sequence[float]
    seed: int = 0
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def group(self, place: int, size: int) -> list[Proposal]:
        """Proposals for ``place`` on; a token is its place, a wrong one is -1."""
        actual, is_right = [], True
        for chance in self.chances[:size]:
            sure = self.rng.betavariate(1.2 * chance, 1.2 * (1 - chance))
            is_right = is_right and self.rng.random() < sure
            actual.append(Proposal(place + len(actual) if is_right else -1, sure, ()))
        return actual


def write(
    drafter: Drafter, text: Text, curve: Curve, length: int, settings: DecodeSettings = AUTO
) -> tuple[float, int]:
    place, cost, num_masks, drafts = 0, 0.0, 0, [0][:0]
    while place < length:
        offers = drafter.offers(settings, 1, len(drafts), curve)
        feed = FeedLimits.of_offer(choose([drafter], [offers], curve, 1)[0])
        fed = drafts[: feed.num_drafts]
        sizes = group_sizes(settings, feed, 10**6, len(fed))
        cost += curve.of(1 + len(fed) + sum(sizes), sum(sizes))
        num_masks += sum(sizes)
        num_agreed = 0
        while num_agreed < len(fed) and fed[num_agreed] == place + num_agreed:
            num_agreed += 1
        emitted = list(range(place, place + num_agreed + 1))
        place += len(emitted)
        group = text.group(place, sizes[num_agreed])
        drafts, _ = drafter.update(settings, emitted, group, [], 0, curve)
    return cost, num_masks


def test_averages_follow_what_came_of_predictions() -> None:
    averages = Averages()
    before = averages.chances([4, 1])
    for _ in range(50):
        averages.store([Prediction(5, 4, 0), Prediction(6, 1, 1), Prediction(7, 1, 2)])
        averages.observe([5, 9])  # the third is not scored: it continued another text
        averages.observe([7])
    assert averages.chances([4])[0] > 0.95 > before[0]
    assert len(averages.chances([4, 1])) == 1  # the second is not worth a position any more
    assert averages.mask_chances(3)[0] > 0.9
    assert averages.mask_chances(3)[1:] < [0.1]


def test_a_prediction_waits_until_its_place_is_written() -> None:
    """One token per forward: the third of three is judged three forwards later."""
    slow, fast = Averages(), Averages()
    chain = [Prediction(5, 7), Prediction(6, 11), Prediction(7, 11)]
    for averages, parts in ((slow, [[5], [6], [8]]), (fast, [[5, 6, 8]])):
        averages.store(chain)
        for part in parts:
            averages.observe(part)
    assert slow.chances([7, 11]) == fast.chances([7, 11])
    assert slow.chances([7]) > Averages().chances([7])


@pytest.mark.parametrize("may_branch", [True, False])
def test_what_could_be_fed_by_hand(may_branch: bool) -> None:
    offers = combinations(1, [0.6], {1: 0.5}, may_branch=may_branch)
    actual = {
        (offer.num_drafts, offer.roots): (round(offer.gain, 6), offer.width) for offer in offers
    }
    expected = {(0, ()): (0.0, 1), (0, (0,)): (0.5, 2), (1, ()): (0.6, 2), (1, (1,)): (0.9, 3)}
    if may_branch:
        expected[1, (1, 0)] = (1.1, 4)
    assert actual == expected


def costs(curve: str, masks: tuple[float, ...] = ()) -> ForwardCosts:
    plain = tuple(CURVES[curve])
    return ForwardCosts(MOST_MASKS + 1, {1: plain, 4: plain}, masks={1: masks, 4: masks})


@pytest.mark.parametrize(
    ("curve", "chances", "least"),
    [
        ("flat", CHAT, 1.4),
        ("flat", MATHS, 1.6),
        ("flat", SURE, 3.5),
        ("gentle", CHAT, 1.2),
        ("gentle", MATHS, 1.35),
        ("gentle", SURE, 3.0),
        ("cliff", CHAT, 1.15),
        ("cliff", SURE, 2.0),
    ],
)
def test_masks_are_fed_where_they_pay(curve: str, chances: list[float], least: float) -> None:
    cost, num_masks = write(Drafter(MOST_MASKS), Text(chances), Curve(CURVES[curve]), 1500)
    assert 1500 / cost > least
    assert num_masks > 100


@pytest.mark.parametrize(("curve", "chances"), list(product(CURVES, [NOTHING, CHAT])))
def test_masks_that_cost_more_than_they_bring_are_not_fed(curve: str, chances: list[float]) -> None:
    dear = Curve(CURVES[curve], DEAR_MASKS)
    cost, num_masks = write(Drafter(MOST_MASKS), Text(chances), dear, 1500)
    assert 1500 / cost > 0.98
    assert num_masks < 1500 * 0.1


@pytest.mark.parametrize(("masks", "is_declined"), [(DEAR_MASKS, True), ((), False)])
def test_a_run_says_why_it_was_fed_no_masks(masks: tuple[float, ...], is_declined: bool) -> None:
    script = foresight_script(1, eos_share=0.0)
    known = costs("gentle", masks[1:])
    *steps, last = steps_of(decode(ScriptedModel(script), IDS, [[3]], lambda: AUTO, known))
    assert not any(step.declined for step in steps)
    assert bool(last.declined) == is_declined
    if is_declined:
        tokens, cost = last.declined
        assert 1.0 < tokens < cost


def test_a_text_that_changes_is_noticed() -> None:
    drafter, curve = Drafter(MOST_MASKS), Curve(CURVES["gentle"])
    write(drafter, Text(NOTHING), curve, 400)
    cost, _ = write(drafter, Text(SURE), curve, 600)
    assert 600 / cost > 1.5
    cost, _ = write(drafter, Text(NOTHING), curve, 600)
    assert 600 / cost > 0.95


def drafting(num_drafts: int) -> Drafter:
    drafter = Drafter(0)
    drafter.update(AUTO, [4], [], [5] * num_drafts, 4, Curve(CURVES["flat"]))
    return drafter


def test_a_row_that_drafts_does_not_slow_down_a_batch_by_more_than_it_gains() -> None:
    """Two further tokens are worth less than 0.3 of the steps of eight rows, not of two."""
    curve = Curve([1.0, 1.15, 1.3, *[9.0] * 60])
    for num_rows, is_fed in ((2, True), (8, False)):
        drafters = [drafting(2), *(drafting(0) for _ in range(num_rows - 1))]
        offers = [drafter.offers(AUTO, 1, 2, curve) for drafter in drafters]
        chosen = choose(drafters, offers, curve, 1)
        assert (chosen[0].num_drafts == 2) == is_fed
        assert {offer.num_drafts for offer in chosen[1:]} == {0}
    # A row with a fixed number of tokens pays for them in any case.
    assert choose(drafters, offers, curve, 3)[0].num_drafts == 2


@given(
    seed=st.integers(0, 10**6),
    curve=st.sampled_from(sorted(CURVES)),
    tau=st.sampled_from([0.0, 0.5, 0.9]),
    num_rows=st.integers(1, 3),
    mask_layout=st.sampled_from(MASK_LAYOUTS),
    lookup=st.booleans(),
    ids=st.sampled_from([IDS, NO_MASK]),
)
def test_law_3_holds_for_any_choice(
    seed: int,
    curve: str,
    tau: float,
    num_rows: int,
    mask_layout: MaskLayout,
    lookup: bool,
    ids: Ids,
) -> None:
    script = foresight_script(seed, eos_share=0.01)
    prompts = [[3 + row, 4, 5, 3 + row, 4] for row in range(num_rows)]
    settings = replace(AUTO, tau=tau, mask_layout=mask_layout, lookup=lookup, max_new_tokens=50)
    ar = replace(settings, method="ar")
    plain = list(decode(ScriptedModel(script), ids, prompts, lambda: ar))
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


@pytest.mark.parametrize("num_rows", [1, 8])
def test_where_the_text_repeats_itself_masks_are_left_out(num_rows: int) -> None:
    settings, prompts = replace(AUTO, lookup=True), [[3]] * num_rows
    events = list(decode(ScriptedModel(counting), IDS, prompts, lambda: settings, costs("gentle")))
    steps = steps_of(events)
    late = [step for step in steps if step.start > 60]
    assert sum(len(step.accepted) for step in late) / len(late) > 8
    assert all(step.looked_up for step in late[:-1])
    assert sum(step.num_fed - step.num_pending for step in late) < len(late)
