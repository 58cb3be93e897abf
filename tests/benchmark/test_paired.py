"""Figures of one answer, on numbers by hand; pairs, order and ratios with peers that say how long
they took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_answers import QUESTIONS, answer, peer, row, samples_of

from mars_runtime.lab.benchmark.paired import (
    Chunk,
    TimedAnswer,
    TimedRow,
    agreement,
    best_threads,
    fastest,
    fingerprint,
    num_answers,
    one_row,
    play,
    ratio,
    spread,
)

# Two rows in one batch: the first takes 2 + 3, waits one forward, then 1; the second 1 + 1 + 1 + 1.
FAST = row([2, 3, 1], [1.0, 1.5, 2.5])
SLOW = row([1, 1, 1, 1], [1.0, 1.5, 2.0, 2.5])
BATCH = TimedAnswer((FAST, SLOW), 2.5, 4)


def test_order_alternates_and_every_pair_is_played():
    seen: list[str] = []
    peers = [peer("a", 1.0), peer("b", 1.0)]
    samples = list(play(peers, QUESTIONS[:2], 2, lambda peer: seen.append(peer.name)))
    assert seen == ["a", "b", "b", "a", "b", "a", "a", "b"]
    assert len({(sample.peer, sample.question, sample.round) for sample in samples}) == 8


@pytest.mark.parametrize("span", ["decode", "whole"])
def test_ratio_is_paired_by_question(span: str):
    samples = samples_of(peer("fast", 1.0), peer("slow", 3.0))
    got = ratio(samples, "fast", "slow", ["symbolic", "reading"], span)  # type: ignore[arg-type]
    assert got is not None
    assert got.value == pytest.approx(3.0)
    assert got.low == pytest.approx(got.high)


def test_one_slow_round_does_not_move_the_ratio():
    samples = samples_of(peer("fast", 1.0), peer("slow", 2.0), num_rounds=3)
    hiccup = [
        replace(sample, answer=answer(99.0))
        if sample.peer == "fast" and sample.round == 1
        else sample
        for sample in samples
    ]
    got = ratio(hiccup, "fast", "slow", ["symbolic"], "whole")
    assert got is not None
    assert got.value == pytest.approx(2.0)


def test_eta_is_the_speedup_over_the_tokens_saved():
    # Half the forwards in 0.6 of the time: each forward costs 1.2 times as much.
    samples = samples_of(peer("mars", 0.6, per_forward=2), peer("ar", 1.0))
    got = ratio(samples, "mars", "ar", ["symbolic"], "whole", "eta")
    assert got is not None
    assert got.value == pytest.approx(1 / 1.2)


def test_no_pair_no_ratio():
    samples = samples_of(peer("fast", 1.0))
    assert ratio(samples, "fast", "slow", ["symbolic"], "whole") is None
    assert ratio(samples, "fast", "fast", [], "whole") is None
    assert agreement(samples, "fast", "slow") is None
    assert fastest(samples, ["slow"]) is None


def test_agreement_counts_equal_rows():
    samples = samples_of(peer("a", 1.0), peer("b", 1.0), peer("c", 1.0, tokens=(1,)))
    assert agreement(samples, "a", "b") == 1.0
    assert agreement(samples, "a", "c") == 0.0


def test_every_peer_is_taken_at_its_best_threads():
    samples = samples_of(peer("a", 2.0, 1), peer("b", 1.0, 1), peer("a", 1.0, 2), peer("b", 3.0, 2))
    assert best_threads(samples) == {"a": 2, "b": 1}


def test_the_fastest_has_the_most_tokens_a_second():
    samples = samples_of(peer("a", 2.0), peer("b", 1.0), peer("c", 0.5))
    assert fastest(samples, ["a", "b"]) == "b"


def test_spread_is_of_the_rounds_of_a_question():
    samples = samples_of(peer("a", 1.0))
    assert spread(samples, "a") == 0.0
    slower = [replace(sample, answer=answer(9.0)) if sample.round else sample for sample in samples]
    # Questions take 1, 2, 3, 4 seconds at first: 9 is 8, 3.5, 2 and 1.25 times more.
    assert spread(slower, "a") == pytest.approx((3.5 + 2.0) / 2)
    assert spread(samples_of(peer("a", 1.0), num_rounds=1), "a") is None


def test_a_slow_peer_answers_some_questions_once():
    slow = replace(peer("slow", 4.0), only=frozenset({0, 2}))
    peers = [peer("fast", 1.0), slow]
    samples = list(play(peers, QUESTIONS, 2, lambda peer: None))
    answered = [(sample.question, sample.round) for sample in samples if sample.peer == "slow"]
    assert sorted(answered) == [(0, 0), (2, 0)]
    assert len(samples) == num_answers(peers, len(QUESTIONS), 2) == 2 * len(QUESTIONS) + 2
    got = ratio(samples, "fast", "slow", ["symbolic", "reading"], "whole")
    assert got is not None
    assert got.value == pytest.approx(4.0)
    assert ratio(samples, "fast", "slow", ["natural"], "whole") is None


def test_a_row_waits_for_its_first_tokens():
    assert FAST.ttft == 1.0
    assert FAST.tpf == 2.0
    refused_first = row([0, 2, 2], [1.0, 2.0, 4.0])
    assert refused_first.ttft == 2.0


def test_the_decode_span_begins_when_every_row_has_tokens():
    assert BATCH.first_seconds == 1.0
    assert BATCH.rate("whole") == pytest.approx(10 / 2.5)
    assert BATCH.rate("decode") == pytest.approx(7 / 1.5)
    late = TimedAnswer((row([1, 1], [1.0, 2.0]), row([1], [2.0])), 2.0, 2)
    assert late.first_seconds == 2.0
    assert late.rate("decode") is None
    assert late.decode_seconds() is None


def test_effective_tpf_counts_what_waiting_costs():
    assert BATCH.effective_tpf() == pytest.approx(10 / (4 * 2))
    assert BATCH.effective_tpf("decode") == pytest.approx(7 / (3 * 2))
    assert TimedAnswer((row([4], [1.0]),), 1.0, 1).effective_tpf("decode") is None


def test_a_streamed_row_leaves_padding_out():
    actual = one_row([7, 8, 9, 0, 0], [1.0, 2.0], [1, 2])
    assert actual.tokens == (7, 8, 9)
    assert actual.chunks == (Chunk(1.0, 1), Chunk(2.0, 2))
    assert one_row([7, 8], [1.0, 2.0]).tpf == 1.0


def test_hashes_tell_rows_apart():
    assert fingerprint([[1, 2], [3]]) != fingerprint([[1], [2, 3]])
    assert fingerprint([[1, 2]]) == fingerprint([(1, 2)])


def test_an_answer_without_tokens_is_refused():
    with pytest.raises(ValueError, match="at least one token in every row"):
        TimedAnswer((TimedRow((), ()),), 1.0, 1)
