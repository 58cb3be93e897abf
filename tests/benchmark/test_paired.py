"""Figures of answers and forward passes on numbers by hand; pairs, order and ratios of peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_answers import QUESTIONS, answer, peer, samples_of

from mars_runtime.lab.benchmark.forward import forward_times, rho_curve
from mars_runtime.lab.benchmark.paired import Chunk, TimedAnswer, agreement, play, ratio, spread
from mars_runtime.model.load import load_checkpoint


def test_order_alternates_and_every_pair_is_played():
    seen: list[str] = []
    peers = [peer("a", 1.0), peer("b", 1.0)]
    samples = list(play(peers, QUESTIONS[:2], 2, lambda peer: seen.append(peer.name)))
    assert seen == ["a", "b", "b", "a", "b", "a", "a", "b"]
    assert len({(sample.peer, sample.question, sample.round) for sample in samples}) == 8


def test_ratios_are_paired_by_question_and_one_slow_round_does_not_move_them():
    samples = samples_of(peer("fast", 1.0), peer("slow", 3.0), num_rounds=3)
    hiccup = [
        sample._replace(answer=answer(99.0))
        if sample.peer == "fast" and sample.round == 1
        else sample
        for sample in samples
    ]
    for span in ("decode", "whole"):
        for actual in (samples, hiccup):
            got = ratio(actual, "fast", "slow", ["symbolic", "reading"], span)  # type: ignore[arg-type]
            assert got is not None
            assert (got.value, got.low, got.high) == (pytest.approx(3.0),) * 3


def test_eta_is_the_speedup_over_the_tokens_saved():
    # Half the forwards in 0.6 of the time: each forward costs 1.2 times as much.
    samples = samples_of(peer("mars", 0.6, per_forward=2), peer("ar", 1.0))
    got = ratio(samples, "mars", "ar", ["symbolic"], "whole", "eta")
    assert got is not None
    assert got.value == pytest.approx(1 / 1.2)


def test_agreement_counts_equal_answers():
    samples = samples_of(peer("a", 1.0), peer("b", 1.0), peer("c", 1.0, tokens=(1,)))
    assert agreement(samples, "a", "b") == 1.0
    assert agreement(samples, "a", "c") == 0.0


def test_spread_is_of_the_rounds_of_a_question():
    samples = samples_of(peer("a", 1.0))
    assert spread(samples, "a") == 0.0
    slower = [sample._replace(answer=answer(9.0)) if sample.round else sample for sample in samples]
    # Questions take 1, 2, 3, 4 seconds at first: 9 is 8, 3.5, 2 and 1.25 times more.
    assert spread(slower, "a") == pytest.approx((3.5 + 2.0) / 2)
    assert spread(samples_of(peer("a", 1.0), num_rounds=1), "a") is None


def test_the_decode_span_begins_with_the_first_tokens():
    late = TimedAnswer(
        (1, 2, 3, 4, 5), (Chunk(1.0, 0), Chunk(2.0, 2), Chunk(3.0, 0), Chunk(4.0, 3)), 4.5
    )
    assert late.first_seconds == 2.0
    assert late.rate("whole") == pytest.approx(5 / 4.5)
    assert late.rate("decode") == pytest.approx(3 / 2.5)
    assert (late.tpf(), late.tpf("decode")) == (5 / 4, 3 / 2)
    at_once = TimedAnswer((1, 2), (Chunk(1.0, 2),), 1.0)
    assert (at_once.rate("decode"), at_once.tpf("decode")) == (None, None)


def test_an_answer_without_tokens_is_refused():
    with pytest.raises(ValueError, match="at least one token"):
        TimedAnswer((), (), 1.0)


def test_rho_is_the_median_of_paired_ratios_at_every_width(random_folder: Path):
    rounds = [{1: 1.0, 3: 1.5}, {1: 2.0, 3: 3.0}, {1: 1.0, 3: 9.0}]
    width_one, three = rho_curve(4, rounds)
    assert (width_one.width, width_one.rho.value, width_one.num_rows) == (1, 1.0, 4)
    assert (three.rho.value, three.seconds) == (pytest.approx(1.5), 3.0)
    model = load_checkpoint(str(random_folder), device="cpu").model
    rounds = forward_times(model, 2, (1, 3), 16, 4)
    assert len(rounds) == 4
    assert all(set(item) == {1, 3} and min(item.values()) > 0 for item in rounds)
