"""When timings cannot be trusted: what other processes do on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_child_that_has_ended_is_none_of_the_others(tmp_path: Path):
    cores, ticks = os.sched_getaffinity(0), os.sysconf("SC_CLK_TCK")

    def write(busy: int, idle: int) -> None:
        line = f"{busy * ticks} 0 0 {idle * ticks} 0 0 0 0 0 0"
        (tmp_path / "stat").write_text("".join(f"cpu{core} {line}\n" for core in cores))

    write(10, 90)
    others, before = Others(tmp_path / "stat"), sum(os.times()[:4])
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    write(16, 94)
    share = (sum(os.times()[:4]) - before) / len(cores)
    assert share > 0.01
    assert others.share() == pytest.approx((6.0 - share) / 10.0, abs=0.003)
    assert Others(tmp_path / "nothing").share() is None


def test_each_sign_of_a_busy_machine_is_a_doubt():
    assert Quiet(2, 0.5, 0.02, 0.05).doubts == Quiet(2, 0.5, None, None).doubts == []
    assert Quiet(2, 1.4, 0.25, 0.4).doubts == [
        "the load before the start was 1.4 on 2 cores",
        "other processes used 25% of 2 cores",
        "repeated AR runs differ by 40%",
    ]


def test_versions_that_one_result_adds_are_not_in_the_next():
    provenance()["versions"]["a peer"] = "1"
    assert "a peer" not in provenance()["versions"]
