"""A closed loop of clients against a plain server; its arithmetic on numbers written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openai")

from scripted_server import NAME, Oracle, serving

from mars_runtime.lab.scaling import Pair, Span, Traffic, TrafficError, drive, tokens_within


def test_an_answer_counts_by_its_share_in_the_window() -> None:
    spans = [Span(0.0, 4.0, 8), Span(2.0, 3.0, 5), Span(4.0, 8.0, 4), Span(9.0, 10.0, 100)]
    assert tokens_within(spans, 2.0, 6.0) == pytest.approx(4 + 5 + 2)


def test_the_ratio_of_a_pair() -> None:
    assert Pair(Traffic(10.0, 1, 0), Traffic(17.0, 1, 0)).ratio == pytest.approx(1.7)


def test_clients_ask_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mars_runtime.lab.scaling.RAMP_SECONDS", 0.1)
    with serving(tmp_path, Oracle(forward_seconds=0.001), max_runs=2, max_waiting=0) as place:
        found = drive(place.address, NAME, ["one", "two"], 3, 0.8, 8)
        assert found.num_answers > 3
        assert found.tokens_per_second > 0
        assert found.num_refused > 0  # a third client has no place
        with pytest.raises(TrafficError, match="failed"):
            drive(place.address, "absent", ["one"], 1, 0.1, 8)
