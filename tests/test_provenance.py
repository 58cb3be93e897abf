"""When timings are not to be believed: what others do on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mars_runtime.provenance import Others, Quiet, core_seconds, provenance

# man 5 proc: user nice system idle iowait irq softirq steal guest guest_nice
STAT = """cpu  300 0 100 600 0 0 0 0 0 0
cpu0 100 0 50 250 50 0 0 50 9 9
cpu1 200 0 50 250 0 0 0 0 0 0
intr 12345
""".splitlines()


def test_core_seconds_are_of_the_cores_asked():
    assert core_seconds(STAT, {"cpu0"}, 100) == pytest.approx((2.0, 5.0))
    assert core_seconds(STAT, {"cpu0", "cpu1"}, 100) == pytest.approx((4.5, 10.0))
    assert core_seconds(STAT, {"cpu7"}, 100) is None


def test_others_are_unknown_where_the_system_does_not_say(tmp_path: Path):
    assert Others(tmp_path / "nothing").share() is None


def test_a_child_that_has_ended_is_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([(10.0, 100.0), (16.0, 110.0)])
    monkeypatch.setattr(Others, "_read", lambda self: next(busy))
    own = iter([(1.0, 1.0, 0.0, 0.0), (2.0, 1.5, 3.0, 0.5)])
    monkeypatch.setattr("os.times", lambda: os.times_result((*next(own), 0.0)))
    assert Others().share() == pytest.approx((6.0 - 5.0) / 10.0)


def test_a_quiet_machine_leaves_no_doubt():
    assert Quiet(2, 0.5, 0.02, 0.05).doubts == []
    assert Quiet(2, 0.5, None, None).doubts == []


def test_each_witness_is_heard():
    found = Quiet(2, 1.4, 0.25, 0.4).doubts
    assert found == [
        "the load before the start was 1.4 on 2 cores",
        "others used 25% of 2 cores meanwhile",
        "repeats of AR lie 40% apart",
    ]


def test_versions_that_one_result_adds_are_not_in_the_next() -> None:
    provenance()["versions"]["a peer"] = "1"
    assert "a peer" not in provenance()["versions"]
