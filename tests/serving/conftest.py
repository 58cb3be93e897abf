"""Scripted servers that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openai")

from scripted_server import Oracle, Place, serving

from mars_runtime.serving.requests import Caps


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Served without weights; a forward takes a millisecond."""
    with serving(tmp_path_factory.mktemp("server"), Oracle(forward_seconds=0.001)) as server:
        yield server


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Place]:
    """Two run at once, three wait; a forward takes 50 ms."""
    backend = Oracle(forward_seconds=0.05)
    with serving(tmp_path, backend, max_runs=2, max_waiting=3) as server:
        yield server


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Place]:
    """An address has at most two runs at once; a forward takes 20 ms."""
    backend, caps = Oracle(forward_seconds=0.02), Caps(max_runs_per_address=2)
    with serving(tmp_path, backend, caps=caps) as server:
        yield server
