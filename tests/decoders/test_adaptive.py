"""Choosing B: the arithmetic by hand, by simulation, and what it costs on unforeseeable text."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.acceptance import DecodeError, Judgement
from mars_runtime.decoders import CursorBatch, decode, drafting
from mars_runtime.decoders.drafting import MAX_SPACING, BlockSizes, Outlook, rate
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts
from mars_runtime.events import Step
from mars_runtime.settings import MAX_FED, Aim, DecodeSettings
from tests.methods import decode_as

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
AUTO = DecodeSettings(tau=0.5, block_size="auto", max_new_tokens=200)
LOSSLESS = replace(AUTO, tau=0.0, lossless=True)
DEPTH = 8
CURVES = {
    "flat": tuple(1 + 0.005 * q for q in range(15)),
    "gentle": tuple(1 + 0.06 * q for q in range(15)),
    "steep": tuple(1 + 0.4 * q for q in range(15)),
    "cliff": (1.0, 1.05, 1.1, 2.4, *[2.5] * 11),
}


def costs(curve: str) -> ForwardCosts:
    return ForwardCosts(DEPTH, {1: CURVES[curve]})


def test_the_curve_is_that_of_the_next_larger_batch() -> None:
    known = ForwardCosts(2, {1: (1.0, 1.1, 1.2), 4: (1.0, 1.5, 2.0)})
    assert known.curve(1).plain[:4] == [1.0, 1.1, 1.2, 1.2 * 4 / 3]
    assert len(known.curve(1).plain) == MAX_FED
    assert known.curve(2) == known.curve(4)
    assert known.curve(4).plain[:3] == [1.0, 1.5, 2.0]


def test_more_rows_than_were_measured_cost_as_many_tokens_of_fewer() -> None:
    """A forward of 8 rows of 2 tokens costs what 4 rows of 4 do, not what 4 of 2 do."""
    known = ForwardCosts(2, {1: (1.0, 1.1), 4: (1.0, 1.2, 1.8, 2.4)}, masks={4: 0.12})
    assert known.curve(8).plain[:2] == pytest.approx([1.0, 2.4 / 1.2])
    assert known.curve(8).masks == pytest.approx(0.1)
    assert known.curve(6).plain[:2] == pytest.approx([1.0, 1.8 / 1.1])
    flat = ForwardCosts(2, {4: (1.0,) * 32})
    assert flat.curve(8).plain[:16] == pytest.approx([1.0] * 16)


def test_masks_add_what_was_measured_for_the_batch() -> None:
    known = ForwardCosts(2, {1: (1.0, 1.1), 4: (1.0, 1.5)}, masks={1: 0.25, 4: 0.1})
    assert known.curve(1).of(2, 0) == 1.1
    assert known.curve(1).of(2, 1) == pytest.approx(1.35)
    assert known.curve(3).of(1, 0) == 1.0
    assert known.curve(3).of(2, 1) == pytest.approx(1.6)


def test_rate_by_hand() -> None:
    curve = Curve([1.0, 1.2, 1.4, 2.0])
    assert rate(1, [[(0.5, 1.0)]], curve) == 1.0
    # Half of the forwards take 2 tokens, and the next one feeds 3 instead of 2.
    assert rate(2, [[(0.5, 1.0)]], curve) == pytest.approx(1.5 / 1.3)
    # Of three forwards two verify a draft and one comes after a refusal: 2 tokens for 1.5 forwards.
    assert rate(2, [[(1.0, 0.5)]], curve) == pytest.approx((2 / 1.5) / (1.2 / 3 + 1.4 * 2 / 3))
    # Two rows: 4 tokens per forward where 2 are AR's, and all rows feed as much as the longest.
    assert rate(2, [[(1.0, 1.0)], [(1.0, 1.0)]], curve) == pytest.approx(2 / 1.4)
    either = 0.5 * 0.5 * 1.2 + 0.75 * 1.4
    assert rate(2, [[(0.5, 1.0)]] * 2, curve) == pytest.approx(1.5 / either)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("is_verified", [False, True])
def test_rate_is_what_a_simulation_gives(size: int, is_verified: bool) -> None:
    rng = random.Random(size)
    chances = [(0.8, 0.7 if is_verified else 1.0)] * (size - 1)
    curve = Curve([1 + 0.1 * q for q in range(16)])
    tokens = seconds = num_drafts = 0.0
    for _ in range(60_000):
        seconds += curve.of(int(num_drafts) + size, size - 1)
        agreed = 0
        while agreed < num_drafts and rng.random() < chances[agreed][1]:
            agreed += 1
        tokens += 1 + agreed
        if agreed < num_drafts:
            num_drafts = 0
            continue
        num_drafts = 0
        while num_drafts < size - 1 and rng.random() < chances[int(num_drafts)][0]:
            num_drafts += 1
    assert rate(size, [chances], curve) == pytest.approx(tokens / seconds, rel=0.02)


def judgement(num_emitted: int, stop: str = "threshold") -> Judgement:
    return Judgement([5] * num_emitted, 0, [], stop)  # type: ignore[arg-type]


def test_what_was_never_seen_is_guessed_below_the_place_before_it() -> None:
    outlook = Outlook(AUTO, DEPTH)
    for _ in range(20):
        outlook.observe(judgement(2, "block"), 0, 2)
    made = [chance for chance, _ in outlook.chances()]
    assert made[0] > 0.9
    assert made == sorted(made, reverse=True)
    for _ in range(20):
        outlook.observe(judgement(2), 0, 3)
    assert outlook.chances()[1][0] < 0.2 < outlook.chances()[0][0]


def test_an_outlook_holds_under_its_own_settings() -> None:
    outlook = Outlook(AUTO, DEPTH)
    assert outlook.fits(replace(AUTO, max_new_tokens=9, seed=4))
    for other in (LOSSLESS, replace(AUTO, tau=0.6), replace(AUTO, metric="margin")):
        assert not outlook.fits(other)


class Foreseen:
    """A row, as far as its masks are concerned."""

    outlook: Outlook | None = None


def sizes(foresight: list[int], curve: str, settings: DecodeSettings = AUTO) -> list[int]:
    """B of each forward where the masks of forward i foresee ``foresight[i]`` tokens."""
    block_sizes, row = BlockSizes(costs(curve)), Foreseen()
    chosen = []
    for foreseen in foresight:
        size = block_sizes.choose([(row, settings)])
        chosen.append(size)
        taken = min(size, 1 + foreseen)
        verdict = judgement(taken, "block" if taken == size else "threshold")
        row.outlook.observe(verdict, 0, size)
    return chosen


@pytest.mark.parametrize("curve", CURVES)
def test_where_nothing_is_foreseen_it_costs_less_than_five_percent(curve: str) -> None:
    chosen = sizes([0] * 1500, curve)
    for length in (64, 256, 1500):
        assert sum(CURVES[curve][size - 1] for size in chosen[:length]) / length < 1.05
    if curve != "flat":
        probes = [place for place, size in enumerate(chosen) if size > 1]
        gaps = [after - before for before, after in itertools.pairwise(probes)]
        assert max(gaps) == gaps[-1] == MAX_SPACING + 1


def test_where_all_is_foreseen_all_is_asked_for() -> None:
    assert set(sizes([9] * 60, "gentle")[20:]) == {DEPTH}


def test_past_a_cliff_only_for_a_look() -> None:
    chosen = sizes([1] * 100, "cliff")
    assert chosen.count(2) > 90
    assert set(chosen[:5]) == {2}


def test_a_probe_finds_that_the_text_has_changed() -> None:
    chosen = sizes([0] * 100 + [9] * 150, "gentle")
    assert max(chosen[30:100]) <= 3
    assert set(chosen[-20:]) == {DEPTH}


def test_a_model_that_foresees_nothing_is_never_asked() -> None:
    block_sizes, row = BlockSizes(ForwardCosts(1, {1: (1.0,)})), Foreseen()
    assert {block_sizes.choose([(row, AUTO)]) for _ in range(300)} == {1}


def test_a_new_row_starts_without_the_past_of_the_one_before() -> None:
    block_sizes, row = BlockSizes(costs("steep")), Foreseen()
    first = block_sizes.choose([(row, AUTO)])
    for _ in range(9):
        row.outlook.observe(judgement(1), 0, 2)
    assert block_sizes.choose([(Foreseen(), AUTO)]) == first


def auto(script, prompts, settings: DecodeSettings, curve: str):
    model = ScriptedModel(script)
    known = ForwardCosts(DEPTH, {1: CURVES[curve], 2: CURVES[curve]})
    return list(decode(model, IDS, prompts, lambda: settings, known))


def counting(prefix: tuple[int, ...]) -> list[float]:
    """Counts 3, 4 ... 15, 3 ...; masks count on, all of it surely."""
    last = max(i for i, token in enumerate(prefix) if token != IDS.mask_id)
    return peaked(3 + (prefix[last] - 3 + len(prefix) - last) % 13, 30.0)


@pytest.mark.parametrize("settings", [AUTO, LOSSLESS])
def test_the_step_says_which_b_was_in_force(settings: DecodeSettings) -> None:
    steps = steps_of(auto(counting, [[3, 4]], settings, "gentle"))
    assert max(step.block_size for step in steps) == DEPTH
    for step in steps:
        fed = step.num_pending - 1 if settings.lossless else 0
        assert len(step.proposals) == fed + step.block_size
        assert step.num_fed == step.num_pending + step.block_size - 1
        assert step.settings.block_size == "auto"


@given(
    seed=st.integers(0, 10**6),
    curve=st.sampled_from(sorted(CURVES)),
    tau=st.sampled_from([0.0, 0.5, 0.9]),
    num_rows=st.integers(1, 3),
)
def test_law_3_holds_whatever_b_is_chosen(seed: int, curve: str, tau: float, num_rows: int) -> None:
    script = foresight_script(seed)
    prompts = [[3 + row, 4] for row in range(num_rows)]
    settings = replace(LOSSLESS, tau=tau, max_new_tokens=30)
    plain = list(decode_as("ar", ScriptedModel(script), IDS, prompts, lambda: settings))
    found = auto(script, prompts, settings, curve)
    assert tokens_of(found, num_rows) == tokens_of(plain, num_rows)


def test_rows_with_a_number_keep_it_beside_rows_without() -> None:
    batch = CursorBatch(ScriptedModel(counting), IDS, 2, 60, ForwardCosts(4, {2: CURVES["flat"]}))
    batch.add(0, [3], lambda: replace(AUTO, max_new_tokens=30))
    batch.add(1, [3], lambda: replace(AUTO, block_size=2, max_new_tokens=30))
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    while len(batch.rows) == 2:
        step = batch.step()
        assert isinstance(step, Step)
        for row in step.rows:
            seen[row.row].add(row.block_size or row.settings.num_proposals)
    assert max(seen[0]) == 4
    assert seen[1] - {1} == {2}


def test_without_costs_a_number_is_asked_for() -> None:
    with pytest.raises(DecodeError, match="choose a number"):
        list(decode(ScriptedModel(counting), IDS, [[3]], lambda: AUTO))


def test_fewest_passes_take_the_largest_b_that_holds_the_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second token is predicted always and a third one half of the time, which does not pay here
    and does not cost a tenth of AR's speed either."""
    dear = replace(AUTO, aim="passes")
    known = (1.0, 1.2, 1.5, 1.9, 2.4, 3.0, *[4.0] * 9)
    monkeypatch.setattr(drafting, "reference_curve", lambda: Curve(known))
    found = {}
    for settings in (AUTO, dear):
        outlook = Outlook(settings, DEPTH)
        for num in range(30):
            outlook.observe(judgement(2 + num % 2), 0, DEPTH)
        row = Foreseen()
        row.outlook = outlook
        found[settings.aim] = BlockSizes(ForwardCosts(DEPTH, {1: known})).choose([(row, settings)])
    rates = [rate(size, [outlook.chances()], Curve(known)) for size in range(1, DEPTH + 1)]
    assert max(rates) == rates[1] > rates[2] >= 0.9 > rates[4]
    assert found == {"time": 2, "passes": 3}


def test_rows_that_share_a_forward_aim_at_passes_only_together() -> None:
    costs_here = ForwardCosts(DEPTH, {2: (1.0, 1.3, 1.6, 2.9, *[4.0] * 11)})

    def chosen(*aims: Aim) -> int:
        asked = []
        for aim in aims:
            settings, row = replace(AUTO, aim=aim), Foreseen()
            row.outlook = Outlook(settings, DEPTH)
            for _ in range(30):
                row.outlook.observe(judgement(2), 0, DEPTH)
            asked.append((row, settings))
        return BlockSizes(costs_here).choose(asked)

    assert chosen("passes", "time") == chosen("time", "time") <= chosen("passes", "passes")
