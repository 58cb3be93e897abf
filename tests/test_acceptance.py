"""Confidence, acceptance and verification on numbers written by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.acceptance import (
    DecodeError,
    Draw,
    Judgement,
    accept_prefix,
    best_of,
    gumbel,
    judge,
    num_proposals,
    read,
    scores,
    verify,
)
from mars_runtime.events import Proposal
from mars_runtime.settings import DecodeSettings

NONE = torch.empty(0, dtype=torch.long)
EOS = frozenset({2})


@pytest.mark.parametrize(
    ("confidences", "tau", "count"),
    [
        ([0.1], 0.9, 1),
        ([0.1, 0.9, 0.9], 0.9, 3),
        ([0.99, 0.5, 0.99], 0.9, 1),
        ([0.0, 0.0, 0.0], 0.0, 3),
        ([0.5, float("nan"), 1.0], 0.0, 1),
        ([1.0, 1.0], 1.0, 2),
        ([], 0.5, 0),
    ],
)
def test_accept_prefix_takes_the_first_and_stops_at_the_first_refusal(
    confidences: list[float], tau: float, count: int
) -> None:
    assert accept_prefix(confidences, tau) == count


@given(st.lists(st.floats(0, 1), min_size=1, max_size=16), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_never_accepts_more(
    confidences: list[float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    few, many = accept_prefix(confidences, high), accept_prefix(confidences, low)
    assert 1 <= few <= many <= len(confidences)


@pytest.mark.parametrize(
    ("drafts", "choices", "count"),
    [([], [5], 0), ([5, 6], [5, 6, 7], 2), ([5, 6], [5, 9, 6], 1), ([5, 6], [6, 6], 0)],
)
def test_verify_counts_the_agreeing_prefix(
    drafts: list[int], choices: list[int], count: int
) -> None:
    assert verify(drafts, choices) == count


def test_scores_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]]))
    assert scores(logits, "probability") == pytest.approx([0.7, 0.4])
    assert scores(logits, "margin") == pytest.approx([0.5, 0.0], abs=1e-6)
    entropy = -sum(p * math.log(p) for p in (0.7, 0.2, 0.1))
    assert scores(logits, "entropy")[0] == pytest.approx(1 - entropy / math.log(3))


@pytest.mark.parametrize("metric", ["probability", "margin", "entropy"])
def test_every_metric_runs_from_0_to_1(metric: str) -> None:
    sure, unsure = torch.zeros(1, 50), torch.zeros(1, 50)
    sure[0, 7] = 200.0
    assert scores(sure, metric) == pytest.approx([1.0])
    assert scores(unsure, metric) == pytest.approx([0.02 if metric == "probability" else 0.0])


def test_entropy_is_taken_over_the_allowed_tokens() -> None:
    logits = torch.zeros(1, 1, 50)
    forbidden = torch.arange(10)
    assert read(logits, forbidden, ["entropy"])[0][0].confidence == pytest.approx(0.0, abs=1e-6)


def test_forbidden_ids_never_come_out_even_when_they_win() -> None:
    logits = torch.tensor([[[9.0, 50.0, 1.0, 3.0, 2.0, 80.0]]])
    slot = read(logits, torch.tensor([1, 5]), ["probability"])[0][0]
    assert slot.token == 0
    assert [token for token, _ in slot.runners_up] == [3, 4, 2]
    assert slot.confidence == pytest.approx(1.0, abs=0.01)
    only_two = read(logits, torch.tensor([1, 2, 3, 5]), ["probability"])[0][0]
    assert [token for token, _ in only_two.runners_up] == [4]


def test_runners_up_are_probabilities_in_order() -> None:
    slot = read(torch.log(torch.tensor([[[0.1, 0.2, 0.3, 0.35, 0.05]]])), NONE, ["margin"])[0][0]
    assert slot.token == 3
    assert slot.confidence == pytest.approx(0.05)
    assert [token for token, _ in slot.runners_up] == [2, 1, 0]
    assert [p for _, p in slot.runners_up] == pytest.approx([0.3, 0.2, 0.1])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_an_error_and_names_the_row(bad: float) -> None:
    logits = torch.zeros(3, 2, 8)
    logits[1, 1, 4] = bad
    with pytest.raises(DecodeError, match="not a number") as caught:
        read(logits, NONE, ["probability"] * 3)
    assert caught.value.rows == (1,)


def test_read_leaves_the_logits_as_they_are() -> None:
    logits = torch.randn(1, 2, 8)
    before = logits.clone()
    read(logits, torch.tensor([3]), ["entropy"])
    assert torch.equal(logits, before)


def test_reading_agrees_with_the_plain_definitions() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 3, 40) * 3
    probabilities = logits.softmax(-1)
    best = probabilities.topk(2).values
    metrics = ["probability", "margin", "entropy", "probability"]
    for row, slots in enumerate(read(logits, NONE, metrics)):
        entropy = -(probabilities[row] * probabilities[row].log()).sum(-1) / math.log(40)
        wanted = {
            "probability": best[row, :, 0],
            "margin": best[row, :, 0] - best[row, :, 1],
            "entropy": 1 - entropy,
        }[metrics[row]]
        assert [slot.confidence for slot in slots] == pytest.approx(wanted.tolist(), abs=1e-5)
        assert [slot.token for slot in slots] == logits[row].argmax(-1).tolist()


def test_noise_depends_on_seed_and_position_alone() -> None:
    noise = gumbel(torch.tensor([[3]]), torch.arange(100, 110).unsqueeze(0), 500)
    again = gumbel(torch.tensor([[9], [3]]), torch.tensor([[104], [104]]), 500)
    assert torch.equal(noise[0, 4], again[1, 0])
    assert not torch.equal(noise[0, 4], again[0, 0])
    assert torch.isfinite(noise).all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.05)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.15)


def test_drawn_tokens_follow_the_tempered_distribution() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    num_draws, temperature = 4000, 0.7
    table = logits.expand(1, num_draws, 3)
    slots = read(table, NONE, ["margin"], [Draw(temperature, seed=5, positions=range(4000))])[0]
    share = [sum(slot.token == token for slot in slots) / num_draws for token in range(3)]
    assert share == pytest.approx((logits / temperature).softmax(-1).tolist(), abs=0.03)
    assert all(slot.confidence == pytest.approx(0.2 if slot.token == 0 else 0.0) for slot in slots)
    assert all(slot.token not in dict(slot.runners_up) for slot in slots)


def test_a_forbidden_id_is_never_drawn() -> None:
    logits = torch.zeros(1, 200, 6)
    slots = read(logits, torch.tensor([0, 5]), ["probability"], [Draw(2.0, 1, range(4000))])[0]
    assert {slot.token for slot in slots} == {1, 2, 3, 4}


def _slots(*pairs: tuple[int, float]) -> list[Proposal]:
    return [Proposal(token, confidence, ()) for token, confidence in pairs]


def judged(
    slots: list[Proposal], drafts: list[int], settings: DecodeSettings, remaining: int
) -> Judgement:
    """One group, behind the last draft."""
    count = len(drafts) + 1
    groups = [*[[]] * len(drafts), slots[count:]]
    return judge(slots[:count], groups, drafts, settings, remaining, EOS)


def test_judge_without_lossless() -> None:
    settings = DecodeSettings(tau=0.5)
    slots = _slots((5, 0.1), (6, 0.9), (7, 0.4), (8, 0.9))
    verdict = judged(slots, [], settings, 99)
    assert (verdict.emitted, verdict.drafts, verdict.stop) == ([5, 6], [], "threshold")
    verdict = judged(_slots((5, 0.9), (2, 0.9), (7, 0.9)), [], settings, 99)
    assert (verdict.emitted, verdict.stop) == ([5, 2], "eos")
    verdict = judged(_slots((5, 0.9), (6, 0.9)), [], settings, 2)
    assert (verdict.emitted, verdict.stop) == ([5, 6], "limit")
    verdict = judged(_slots((5, 0.9), (2, 0.9)), [], settings, 2)
    assert verdict.stop == "eos"
    assert judged(_slots((5, 0.9), (6, 0.9)), [], settings, 3).stop == "block"


def test_judge_lossless_emits_verified_tokens_and_drafts_the_rest() -> None:
    settings = DecodeSettings(tau=0.5, lossless=True)
    slots = _slots((5, 0.1), (6, 0.1), (7, 0.1), (8, 0.9), (9, 0.2))
    verdict = judged(slots, [5, 6], settings, 99)
    assert (verdict.emitted, verdict.num_agreed) == ([5, 6, 7], 2)
    assert (verdict.drafts, verdict.stop) == ([8], "threshold")
    verdict = judged(slots, [5, 9], settings, 99)
    assert (verdict.emitted, verdict.num_agreed) == ([5, 6], 1)
    assert (verdict.drafts, verdict.stop) == ([], "mismatch")
    verdict = judged(_slots((5, 1), (2, 1), (7, 1), (8, 1)), [5, 2], settings, 99)
    assert (verdict.emitted, verdict.drafts, verdict.stop) == ([5, 2], [], "eos")
    verdict = judged(_slots((5, 1), (6, 1), (2, 1), (8, 1)), [], settings, 99)
    assert (verdict.emitted, verdict.drafts) == ([5], [6, 2])


def test_what_a_refused_draft_led_to_is_told_and_counts_for_nothing() -> None:
    settings = DecodeSettings(tau=0.0, lossless=True)
    slots = _slots((5, 0.1), (6, 0.1), (7, 0.1), (8, 0.9))
    assert judged(slots, [5, 9], settings, 99).proposals == tuple(slots)


def test_judge_goes_on_with_the_group_of_the_last_good_draft() -> None:
    """AR says 5 6 7 where 5 and 9 were drafted: the masks after 5 go on, those after 9 do not."""
    settings = DecodeSettings(tau=0.5, lossless=True)
    choices = _slots((5, 0.1), (6, 0.1), (7, 0.9))
    groups = [_slots((10, 0.9)), _slots((11, 0.9), (12, 0.6), (13, 0.4)), _slots((14, 0.9))]
    verdict = judge(choices, groups, [5, 9], settings, 99, EOS)
    assert (verdict.emitted, verdict.num_agreed, verdict.drafts) == ([5, 6], 1, [11, 12])
    assert verdict.stop == "mismatch"
    assert [slot.token for slot in verdict.proposals] == [5, 6, 11, 12, 13]
    verdict = judge(choices, groups, [5, 6], settings, 99, EOS)
    assert (verdict.emitted, verdict.drafts, verdict.stop) == ([5, 6, 7], [14], "block")
    verdict = judge(choices, groups, [9, 6], settings, 99, EOS)
    assert (verdict.emitted, verdict.drafts, verdict.stop) == ([5], [10], "mismatch")
    assert judge(choices, groups, [5, 6], settings, 3, EOS).drafts == []


@given(st.integers(1, 16), st.integers(1, 40), st.integers(0, 15), st.booleans(), st.booleans())
def test_no_more_is_proposed_than_may_still_leave(
    block_size: int, remaining: int, num_drafts: int, lossless: bool, is_ar: bool
) -> None:
    method = "ar" if is_ar else "mars"
    settings = DecodeSettings(method=method, block_size=block_size, lossless=lossless)
    num_drafts = min(num_drafts, remaining - 1) if lossless and not is_ar else 0
    count = num_proposals(settings, remaining, num_drafts)
    assert 1 <= count <= (1 if is_ar else block_size)
    assert num_drafts + count <= remaining


@pytest.mark.parametrize("size", [5000, 8192, 151936, 152064])
def test_the_best_of_many_are_those_of_topk(size: int) -> None:
    table = torch.randn(2, 3, size, generator=torch.Generator().manual_seed(size))
    best, ids = best_of(table, 4)
    expected = table.topk(4)
    assert torch.equal(best, expected.values)
    assert torch.equal(ids, expected.indices)


def test_a_broken_row_is_seen_among_strips() -> None:
    table = torch.zeros(2, 8192)
    table[1, 4000] = float("nan")
    best, ids = best_of(table.softmax(-1), 4)
    assert best[:, 0].isnan().tolist() == [False, True]
    assert int(ids.max()) < 8192
