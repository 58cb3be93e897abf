"""Servers to attack: the page and the endpoint, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from tests.attack.attacked import Place, place_of


@pytest.fixture
def pause() -> float:
    return 0.002


@pytest.fixture
def url(tmp_path: Path, pause: float) -> Iterator[str]:
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT, pause), port=0)
    with page_served(handlers) as url:
        yield url


@pytest.fixture(params=["page", "endpoint"])
def kind(request: pytest.FixtureRequest) -> str:
    parameter: str = request.param
    return parameter


@pytest.fixture
def place(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, pause: float
) -> Iterator[Place]:
    if kind == "page":
        yield place_of(request.getfixturevalue("url"))
        return
    pytest.importorskip("openai")
    from tests.serving.scripted_server import Oracle, serving

    with serving(tmp_path, Oracle(forward_seconds=pause)) as server:
        yield place_of(server.address)
