"""Pairs, order and ratios with peers that say how long they took."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_answers import QUESTIONS, answer, peer, samples_of

from mars_runtime.lab.benchmark.paired import (
    agreement,
    best_threads,
    fastest,
    num_answers,
    play,
    ratio,
    spread,
)


def test_order_alternates_and_every_pair_is_played():
    seen: list[str] = []
    peers = [peer("a", 1.0), peer("b", 1.0)]
    found = list(play(peers, QUESTIONS[:2], 2, lambda peer: seen.append(peer.name)))
    assert seen == ["a", "b", "b", "a", "b", "a", "a", "b"]
    assert len({(one.peer, one.question, one.round) for one in found}) == 8


@pytest.mark.parametrize("span", ["decode", "whole"])
def test_ratio_is_paired_by_question(span: str):
    found = samples_of(peer("fast", 1.0), peer("slow", 3.0))
    got = ratio(found, "fast", "slow", ["symbolic", "reading"], span)  # type: ignore[arg-type]
    assert got is not None
    assert got.value == pytest.approx(3.0)
    assert got.low == pytest.approx(got.high)


def test_one_slow_round_does_not_move_the_ratio():
    found = samples_of(peer("fast", 1.0), peer("slow", 2.0), num_rounds=3)
    hiccup = [
        replace(one, answer=answer(99.0)) if one.peer == "fast" and one.round == 1 else one
        for one in found
    ]
    got = ratio(hiccup, "fast", "slow", ["symbolic"], "whole")
    assert got is not None
    assert got.value == pytest.approx(2.0)


def test_eta_is_the_speedup_over_the_tokens_saved():
    # Half the forwards in 0.6 of the time: each forward costs 1.2 times as much.
    found = samples_of(peer("mars", 0.6, per_forward=2), peer("ar", 1.0))
    got = ratio(found, "mars", "ar", ["symbolic"], "whole", "eta")
    assert got is not None
    assert got.value == pytest.approx(1 / 1.2)


def test_no_pair_no_ratio():
    found = samples_of(peer("fast", 1.0))
    assert ratio(found, "fast", "slow", ["symbolic"], "whole") is None
    assert ratio(found, "fast", "fast", [], "whole") is None
    assert agreement(found, "fast", "slow") is None
    assert fastest(found, ["slow"]) is None


def test_agreement_counts_equal_rows():
    found = samples_of(peer("a", 1.0), peer("b", 1.0), peer("c", 1.0, tokens=(1,)))
    assert agreement(found, "a", "b") == 1.0
    assert agreement(found, "a", "c") == 0.0


def test_every_peer_is_taken_at_its_best_threads():
    found = samples_of(peer("a", 2.0, 1), peer("b", 1.0, 1), peer("a", 1.0, 2), peer("b", 3.0, 2))
    assert best_threads(found) == {"a": 2, "b": 1}


def test_the_fastest_has_the_most_tokens_a_second():
    found = samples_of(peer("a", 2.0), peer("b", 1.0), peer("c", 0.5))
    assert fastest(found, ["a", "b"]) == "b"


def test_spread_is_of_the_rounds_of_a_question():
    found = samples_of(peer("a", 1.0))
    assert spread(found, "a") == 0.0
    slower = [replace(one, answer=answer(9.0)) if one.round else one for one in found]
    # Questions take 1, 2, 3, 4 seconds at first: 9 is 8, 3.5, 2 and 1.25 times more.
    assert spread(slower, "a") == pytest.approx((3.5 + 2.0) / 2)
    assert spread(samples_of(peer("a", 1.0), num_rounds=1), "a") is None


def test_a_slow_peer_answers_some_questions_once():
    slow = replace(peer("slow", 4.0), only=frozenset({0, 2}))
    peers = [peer("fast", 1.0), slow]
    found = list(play(peers, QUESTIONS, 2, lambda peer: None))
    asked = [(one.question, one.round) for one in found if one.peer == "slow"]
    assert sorted(asked) == [(0, 0), (2, 0)]
    assert len(found) == num_answers(peers, len(QUESTIONS), 2) == 2 * len(QUESTIONS) + 2
    got = ratio(found, "fast", "slow", ["symbolic", "reading"], "whole")
    assert got is not None
    assert got.value == pytest.approx(4.0)
    assert ratio(found, "fast", "slow", ["natural"], "whole") is None
