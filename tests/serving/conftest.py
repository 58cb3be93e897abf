"""A scripted server that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("openai")

from scripted_server import Oracle, Place, serving


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Served without weights; a forward takes a millisecond."""
    with serving(tmp_path_factory.mktemp("server"), Oracle(forward_seconds=0.001)) as found:
        yield found
