"""Scripted servers that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openai")

from scripted_server import Endless, Oracle, Place, serving


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("server"), Oracle(forward_seconds=0.001)) as server:
        yield server


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Place]:
    """Two run at once, three wait; an answer of AR takes 38 s."""
    backend = Endless(forward_seconds=0.15)
    with serving(tmp_path, backend, max_runs=2, max_waiting=3) as server:
        yield server
