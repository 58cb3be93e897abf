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
    code = soaking.main(["--minutes", "0.1", "--checkpoint", "mars-tiny", "--out", str(out)])
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["lost"] == []
    assert {"single", "race"} <= document["ended"].keys()
    assert code == (document["growth"] > soaking.MAX_GROWTH)


def test_growth_is_from_the_second_quarter_to_the_last() -> None:
    assert soaking.growth([1, 100, 100, 103]) == pytest.approx(0.03)
    assert soaking.growth([5, 5, 100, 100, 900, 100, 110, 110]) == pytest.approx(0.1)
