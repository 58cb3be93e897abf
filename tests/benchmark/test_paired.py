"""Pairs, order and ratios with peers that say how long they took."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mars_runtime.benchmark import report
from mars_runtime.benchmark.paired import (
    Peer,
    Sample,
    Timing,
    agreement,
    best_threads,
    play,
    ratio,
)

PROMPTS = [("symbolic", [1]), ("symbolic", [2]), ("reading", [3]), ("natural", [4])]


def timing(seconds: float, tokens: Sequence[int] = (5, 6, 7, 8), num_first: int = 1) -> Timing:
    return Timing(tuple(tokens), num_first, len(tokens), seconds / 4, seconds)


def peer(name: str, seconds: float, threads: int = 1, tokens: Sequence[int] = (5, 6, 7, 8)) -> Peer:
    return Peer(name, threads, lambda ids: timing(seconds * ids[0], tokens))


def samples_of(*peers: Peer, num_rounds: int = 2) -> list[Sample]:
    return list(play(peers, PROMPTS, num_rounds, lambda peer: None))


def test_decode_rate_leaves_out_the_first_forward():
    found = Timing((1, 2, 3, 4, 5), 2, 2, 0.5, 2.0)
    assert found.rate("whole") == 2.5
    assert found.rate("decode") == pytest.approx(3 / 1.5)
    assert Timing((1, 2), 2, 1, 0.5, 0.5).rate("decode") is None


def test_order_alternates_and_every_pair_is_played():
    seen: list[str] = []
    peers = [peer("a", 1.0), peer("b", 1.0)]
    found = list(play(peers, PROMPTS[:2], 2, lambda peer: seen.append(peer.name)))
    assert seen == ["a", "b", "b", "a", "b", "a", "a", "b"]
    assert len({(one.peer, one.prompt, one.round) for one in found}) == 8


def test_ratio_is_paired_by_prompt():
    found = samples_of(peer("fast", 1.0), peer("slow", 3.0))
    for span in report.SPANS:
        got = ratio(found, "fast", "slow", ["symbolic", "reading"], span)
        assert got is not None
        assert got.value == pytest.approx(3.0)
        assert got.low == pytest.approx(got.high)


def test_one_slow_round_does_not_move_the_ratio():
    found = samples_of(peer("fast", 1.0), peer("slow", 2.0), num_rounds=3)
    hiccup = [
        Sample(s.peer, 1, s.family, s.prompt, s.round, timing(99.0))
        if s.peer == "fast" and s.round == 1
        else s
        for s in found
    ]
    got = ratio(hiccup, "fast", "slow", ["symbolic"], "whole")
    assert got is not None
    assert got.value == pytest.approx(2.0)


def test_no_pair_no_ratio():
    found = samples_of(peer("fast", 1.0))
    assert ratio(found, "fast", "slow", ["symbolic"], "whole") is None
    assert ratio(found, "fast", "fast", [], "whole") is None
    assert agreement(found, "fast", "slow") is None


def test_agreement_counts_equal_tokens():
    found = samples_of(peer("a", 1.0), peer("b", 1.0), peer("c", 1.0, tokens=(1,)))
    assert agreement(found, "a", "b") == 1.0
    assert agreement(found, "a", "c") == 0.0


def test_every_peer_is_taken_at_its_best_threads():
    found = samples_of(peer("a", 2.0, 1), peer("b", 1.0, 1), peer("a", 1.0, 2), peer("b", 3.0, 2))
    assert best_threads(found) == {"a": 2, "b": 1}
    chosen = report.at_best_threads(found)
    assert {(one.peer, one.threads) for one in chosen} == {("a", 2), ("b", 1)}
    got = ratio(chosen, "a", "b", ["symbolic"], "whole")
    assert got is not None
    assert got.value == pytest.approx(1.0)


def test_tables_set_natural_text_apart():
    found = samples_of(peer("a", 1.0), peer("b", 2.0))
    families, natural = report.peers_tables(found)
    assert [line[:2] for line in families.lines] == [("a", "1 *"), ("b", "1 *")]
    assert families.lines[0][2:] == ("2", "2", "500.0", "1.00")
    assert natural.lines[0][2:] == ("1", "1", "1000.0", "1.00")
    ratios = report.ratios_table(found, [("a", "b")], "decode")
    assert ratios.columns == ("text", "a / b")
    names = ["average over families", "symbolic", "reading", "natural", "same tokens"]
    assert [line[0] for line in ratios.lines] == names
    assert ratios.lines[0][1] == "2.00 [2.00, 2.00]"
    assert ratios.lines[-1][1] == "100 %"


def test_json_has_ratios_and_samples_without_token_ids():
    found = report.to_json(samples_of(peer("a", 1.0), peer("b", 2.0)), [("a", "b")])
    assert len(found["ratios"]) == 2
    assert found["ratios"][0]["families"]["value"] == pytest.approx(2.0)
    assert found["samples"][0]["num_tokens"] == 4
    assert "tokens" not in found["samples"][0]
