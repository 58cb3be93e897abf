"""A clock that tests of the engine move."""

from __future__ import annotations

import pytest

from tests.engine.scripted import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("mars_runtime.engine.engine.time", made)
    return made
