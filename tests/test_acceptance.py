"""Confidence, acceptance and verification on numbers written by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mars_runtime.acceptance import accept_prefix
from mars_runtime.decoders.decision import accept, num_proposals
from mars_runtime.errors import DecodeError
from mars_runtime.model.predictions import Draw, best_of, gumbel, proposals_from_logits
from mars_runtime.runs.events import Proposal
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
def test_the_first_is_always_accepted_and_others_up_to_the_first_below_tau(
    confidences: list[float], tau: float, count: int
) -> None:
    assert accept_prefix(confidences, tau) == count


def test_reading_agrees_with_the_plain_definitions_and_leaves_the_logits() -> None:
    logits = torch.randn(4, 3, 40, generator=torch.Generator().manual_seed(0)) * 3
    before, probabilities = logits.clone(), logits.softmax(-1)
    best, ids = probabilities.topk(4)
    metrics = ["probability", "margin", "entropy", "probability"]
    for row, slots in enumerate(proposals_from_logits(logits, NONE, metrics)):
        entropy = -(probabilities[row] * probabilities[row].log()).sum(-1) / math.log(40)
        wanted = {
            "probability": best[row, :, 0],
            "margin": best[row, :, 0] - best[row, :, 1],
            "entropy": 1 - entropy,
        }[metrics[row]]
        assert [slot.confidence for slot in slots] == pytest.approx(wanted.tolist(), abs=1e-5)
        for place, slot in enumerate(slots):
            tokens, chances = zip(*slot.runners_up, strict=True)
            assert [slot.token, *tokens] == ids[row, place].tolist()
            assert list(chances) == pytest.approx(best[row, place, 1:].tolist())
    assert torch.equal(logits, before)


def test_forbidden_ids_count_for_nothing_even_when_they_win() -> None:
    logits = torch.tensor([[[9.0, 50.0, 1.0, 3.0, 2.0, 80.0]]])
    slot = proposals_from_logits(logits, torch.tensor([1, 5]), ["probability"])[0][0]
    assert slot.token == 0
    assert [token for token, _ in slot.runners_up] == [3, 4, 2]
    assert slot.confidence == pytest.approx(1.0, abs=0.01)
    flat = proposals_from_logits(torch.zeros(1, 1, 50), torch.arange(10), ["entropy"])[0][0]
    assert flat.confidence == pytest.approx(0.0, abs=1e-6)
    hot = [Draw(2.0, 1, range(200))]
    drawn = proposals_from_logits(
        torch.zeros(1, 200, 6), torch.tensor([0, 5]), ["probability"], hot
    )[0]
    assert {slot.token for slot in drawn} == {1, 2, 3, 4}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_an_error_and_names_the_row(bad: float) -> None:
    logits = torch.zeros(3, 2, 8)
    logits[1, 1, 4] = bad
    with pytest.raises(DecodeError, match="not finite numbers") as caught:
        proposals_from_logits(logits, NONE, ["probability"] * 3)
    assert caught.value.rows == (1,)


def test_noise_depends_only_on_seed_and_position() -> None:
    noise = gumbel(torch.tensor([[3]]), torch.arange(100, 110).unsqueeze(0), 500)
    again = gumbel(torch.tensor([[9], [3]]), torch.tensor([[104], [104]]), 500)
    assert torch.equal(noise[0, 4], again[1, 0])
    assert not torch.equal(noise[0, 4], again[0, 0])
    assert torch.isfinite(noise).all()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.05)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.15)


def test_the_best_of_many_are_those_of_topk() -> None:
    table = torch.randn(2, 3, 8192, generator=torch.Generator().manual_seed(1))
    best, ids = best_of(table, 4)
    expected = table.topk(4)
    assert torch.equal(best, expected.values)
    assert torch.equal(ids, expected.indices)
    table[1, 2, 4000] = math.nan
    assert best_of(table, 4)[0][:, 2, 0].isnan().tolist() == [False, True]


# What a forward emits and drafts.

Slots = list[tuple[int, float]]


def proposals(slots: Slots) -> list[Proposal]:
    return [Proposal(token, confidence, ()) for token, confidence in slots]


@pytest.mark.parametrize(
    ("slots", "remaining", "emitted", "stop"),
    [
        ([(5, 0.1), (6, 0.9), (7, 0.4), (8, 0.9)], 99, [5, 6], "threshold"),
        ([(5, 0.9), (2, 0.9), (7, 0.9)], 99, [5, 2], "eos"),
        ([(5, 0.9), (6, 0.9)], 2, [5, 6], "limit"),
        ([(5, 0.9), (2, 0.9)], 2, [5, 2], "eos"),
        ([(5, 0.9), (6, 0.9)], 3, [5, 6], "block"),
    ],
)
def test_accept_without_lossless(slots: Slots, remaining: int, emitted: list[int], stop: str):
    actual = accept(
        proposals(slots[:1]), [proposals(slots[1:])], [], DecodeSettings(tau=0.5), remaining, EOS
    )
    assert (actual.emitted, actual.drafts, actual.stop) == (emitted, [], stop)


LOSSLESS = DecodeSettings(tau=0.5, lossless=True)


@pytest.mark.parametrize(
    ("slots", "drafts", "emitted", "drafted", "stop"),
    [
        ([(5, 0.1), (6, 0.1), (7, 0.1), (8, 0.9), (9, 0.2)], [5, 6], [5, 6, 7], [8], "threshold"),
        ([(5, 0.1), (6, 0.1), (7, 0.1), (8, 0.9), (9, 0.2)], [5, 9], [5, 6], [], "mismatch"),
        ([(5, 1), (2, 1), (7, 1), (8, 1)], [5, 2], [5, 2], [], "eos"),
        ([(5, 1), (6, 1), (2, 1), (8, 1)], [], [5], [6, 2], "block"),
    ],
)
def test_accept_lossless_emits_verified_tokens_and_drafts_the_rest(
    slots: Slots, drafts: list[int], emitted: list[int], drafted: list[int], stop: str
) -> None:
    count = len(drafts) + 1
    groups = [*[[]] * len(drafts), proposals(slots[count:])]
    actual = accept(proposals(slots[:count]), groups, drafts, LOSSLESS, 99, EOS)
    assert (actual.emitted, actual.drafts, actual.stop) == (emitted, drafted, stop)
    assert actual.num_agreed == len(emitted) - (stop != "eos")
    # What a rejected draft led to is reported, and counts for nothing.
    assert stop != "mismatch" or actual.proposals == tuple(proposals(slots))


@pytest.mark.parametrize(
    ("drafts", "remaining", "emitted", "drafted", "stop"),
    [
        ([5, 9], 99, [5, 6], [11, 12], "mismatch"),
        ([5, 6], 99, [5, 6, 7], [14], "block"),
        ([9, 6], 99, [5], [10], "mismatch"),
        ([5, 6], 3, [5, 6, 7], [], "limit"),
    ],
)
def test_accept_continues_with_the_group_of_the_last_good_draft(
    drafts: list[int], remaining: int, emitted: list[int], drafted: list[int], stop: str
) -> None:
    choices = proposals([(5, 0.1), (6, 0.1), (7, 0.9)])
    groups = [[(10, 0.9)], [(11, 0.9), (12, 0.6), (13, 0.4)], [(14, 0.9)]]
    actual = accept(choices, list(map(proposals, groups)), drafts, LOSSLESS, remaining, EOS)
    assert (actual.emitted, actual.drafts, actual.stop) == (emitted, drafted, stop)
    if drafts == [5, 9]:
        assert [slot.token for slot in actual.proposals] == [5, 6, 11, 12, 13]


@given(st.integers(1, 16), st.integers(1, 40), st.integers(0, 15), st.booleans(), st.booleans())
@example(16, 8, 2, True, False)
def test_no_more_is_proposed_than_may_still_leave(
    block_size: int, remaining: int, num_drafts: int, lossless: bool, is_ar: bool
) -> None:
    method = "ar" if is_ar else "mars"
    settings = DecodeSettings(method=method, block_size=block_size, lossless=lossless)
    num_drafts = min(num_drafts, remaining - 1) if lossless and not is_ar else 0
    count = num_proposals(settings, remaining, num_drafts)
    assert 1 <= count <= (1 if is_ar else block_size)
    assert num_drafts + count <= remaining
    if settings.is_verified:  # AR's own token comes between the drafts that are fed and new ones
        assert count == 1 or num_drafts + 1 + count <= remaining
