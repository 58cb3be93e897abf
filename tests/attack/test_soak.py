"""The soak in its short form: visitors of all kinds for some seconds, and how memory is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("gradio_client")

from tools import soak as soaking


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_no_run_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    given = ["--minutes", "0.05", "--checkpoint", "mars-tiny", "--out", str(out)]
    code = soaking.main(given)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["lost"] == []
    assert {"single", "race", "steer"} <= found["ended"].keys()
    assert found["stopped"]["stop"] >= 1
    assert found["num_tokens"] > 100
    assert len(found["memory_mib"]) >= 10
    assert code == (found["memory_growth"] > soaking.GROWTH)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_nobody_is_told_that_no_more_fit(tmp_path: Path) -> None:
    """Four visitors over three checkpoints, with memory for one."""
    out = tmp_path / "soak.json"
    names = ["mars-tiny-draft", "mars-tiny", "ar-tiny"]
    given = ["--minutes", "0.5", "--visitors", "4", "--fit", "1", "--checkpoint", *names]
    soaking.main([*given, "--out", str(out)])
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["lost"] == []
    assert found["num_without_room"] == 0
    assert found["checkpoint"] == names
    assert sum(found["ended"].values()) > 8


def test_growth_is_from_the_second_quarter_to_the_last() -> None:
    assert soaking.growth([1, 100, 100, 103]) == pytest.approx(0.03)
    assert soaking.growth([5, 5, 100, 100, 900, 100, 110, 110]) == pytest.approx(0.1)
    assert soaking.growth([7, 8, 9]) == 0.0
    assert soaking.growth([9, 9, 50, 90, 10, 80, 55, 99], 3) == pytest.approx(0.1)


def test_who_finds_no_memory_is_counted() -> None:
    tally = soaking.Tally(lost=["single: no more fit.", "race: it ended early"])
    tally.refused["mars-tiny found no memory, which others are using: try again in a while."] += 2
    tally.refused["Loading mars-tiny… Try again in a moment."] += 5
    assert tally.num_without_room == 3
