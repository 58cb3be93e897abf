"""Sets that a visitor's browser keeps: what it may keep, the server accepts again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.handlers import Handlers
from mars_runtime.review.masked import MAX_SEALED
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import About, ReviewSet
from mars_runtime.review.ways import read_ways
from tests.app.scripted_page import ScriptedBackend, make_handlers, page_served

WAYS = ["ar", "tau=0", "tau=0.3", "tau=0.6", "tau=0.9"]
NUM_PROMPTS = 180


@pytest.fixture
def handlers(tmp_path: Path) -> Handlers:
    return make_handlers(tmp_path, ScriptedBackend("A scripted answer."), port=0)


@pytest.fixture
def client(handlers: Handlers) -> Iterator[httpx.Client]:
    with page_served(handlers) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def placed(handlers: Handlers, num_bytes: int) -> str:
    """A set of 180 prompts by five ways whose answers take so many bytes when they are packed."""
    name, folder = handlers.library.place()
    about = About("large", read_ways(WAYS, "tiny"), 0, {})
    items = [Item(f"p{n}", f"Prompt {n}") for n in range(NUM_PROMPTS)]
    review = ReviewSet.create(folder, about, items)
    each = num_bytes // (NUM_PROMPTS * len(WAYS))
    for item, way in review.pairs():
        review.add_text(item, way, secrets.token_hex(each))  # two characters of 4 bits a byte
    return name


@pytest.mark.parametrize("share", [0.3, 0.45, 0.55, 0.7, 1.3])
def test_what_a_browser_keeps_comes_back(
    handlers: Handlers, client: httpx.Client, share: float
) -> None:
    name = placed(handlers, int(share * MAX_SEALED))
    answer = client.get(f"review/sets/{name}/sealed")
    if answer.status_code != 200:
        assert share > 0.5
        assert "too large to be kept in the browser" in answer.json()["detail"]
        assert client.get(f"review/sets/{name}").status_code == 200  # it is still judged
        return
    assert share < 0.6
    sealed = answer.json()["sealed"]
    assert len(sealed) <= MAX_SEALED
    handlers.library._drop(name)  # as after a restart
    brought = client.post("review/sets", json={"sealed": sealed})
    assert brought.status_code == 200, brought.text
    assert brought.json()["name"] == name


def test_the_largest_that_may_be_kept_is_read(handlers: Handlers, client: httpx.Client) -> None:
    """It is refused for what it says, not for its size."""
    body = json.dumps({"sealed": "a" * MAX_SEALED})
    answer = client.post("review/sets", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "large" not in answer.text
