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
@pytest.mark.parametrize(
    ("more", "names"),
    [(["0.05"], ["mars-tiny"]),
     (["0.5", "--visitors", "4", "--fit", "1"], ["mars-tiny-draft", "mars-tiny", "ar-tiny"])],
    ids=["one checkpoint", "three with memory for one"],
)  # fmt: skip
def test_no_run_is_lost(tmp_path: Path, more: list[str], names: list[str]) -> None:
    out = tmp_path / "soak.json"
    code = soaking.main(["--minutes", *more, "--checkpoint", *names, "--out", str(out)])
    document = json.loads(out.read_text(encoding="utf-8"))
    assert (document["lost"], document["num_without_room"]) == ([], 0)
    assert {"single", "race", "steer"} <= document["ended"].keys()
    assert document["num_tokens"] > 100
    assert len(document["memory_mib"]) >= 10
    if len(names) == 1:
        assert document["stopped"]["stop"] >= 1
        assert code == (document["memory_growth"] > soaking.GROWTH)


def test_growth_is_from_the_second_quarter_to_the_last() -> None:
    assert soaking.growth([1, 100, 100, 103]) == pytest.approx(0.03)
    assert soaking.growth([5, 5, 100, 100, 900, 100, 110, 110]) == pytest.approx(0.1)
    assert soaking.growth([9, 9, 50, 90, 10, 80, 55, 99], 3) == pytest.approx(0.1)
