"""Many clients at once, of whom many leave: see ``clients.py``, which runs it as long as asked."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("httpx")

from tools.clients import attack


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_fifty_clients_for_a_minute() -> None:
    found = attack("mars-tiny", 50, 60.0, seed=1)
    assert found["faults"] == []
    assert {"whole", "stream", "left", "nonsense"} <= found["outcomes"].keys()
    assert found["neighbour"]["num_answers"] > 0
