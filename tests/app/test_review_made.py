"""Sets that the page makes are those that the command makes, and a server that dies costs none.

The bundled mars-tiny decodes; no browser.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.handlers import Handlers, make_handlers
from app.review.routes import make_review
from app.serving.engines import Engines
from app.serving.settings import AppSettings
from mars_runtime.__main__ import main
from mars_runtime.review.prompts import as_jsonl, bundled
from tests.review.made_sets import CHECKPOINT, DTYPE, MOST, NAME, WAYS, killed_at, timeless, words

NUM_FEW = 4


@pytest.fixture(scope="module")
def handlers() -> Iterator[Handlers]:
    made = make_handlers(Engines(AppSettings(checkpoint=CHECKPOINT, dtype=DTYPE)))
    yield made
    made.engines.close()


@pytest.fixture(scope="module")
def client(handlers: Handlers) -> TestClient:
    return TestClient(make_review(handlers.library, handlers.making, handlers.engines.settings))


def asked(**prompts: str) -> dict[str, Any]:
    """What the page posts."""
    return {**prompts, "ways": WAYS, "name": NAME, "max_new_tokens": MOST}


def made_on(client: TestClient, told: dict[str, Any]) -> str:
    """The name of the set once it is there."""
    answer = client.post("/review/make", json=told).json()
    assert answer["faults"] == []
    name: str = answer["name"]
    until = time.monotonic() + 300
    while (progress := client.get(f"/review/make/{name}").json())["state"] == "making":
        assert time.monotonic() < until
        time.sleep(0.05)
    assert (progress["state"], progress["refused"]) == ("done", [])
    return name


def test_the_page_makes_what_the_command_makes(
    client: TestClient, handlers: Handlers, tmp_path: Path
) -> None:
    """Also where the page's engine has read the same prompts before, as visitors' runs do."""
    file = tmp_path / "few.jsonl"
    file.write_text(as_jsonl(bundled("word_problems")[:NUM_FEW]), encoding="utf-8")
    assert main(words(str(file), tmp_path / "command")) == 0
    told = asked(prompts=file.read_text(encoding="utf-8"), file=file.name)
    for _ in range(2):
        name = made_on(client, told)
        assert timeless(handlers.library.folder(name)) == timeless(tmp_path / "command")


@pytest.mark.slow
def test_twenty_prompts_in_three_ways_and_two_kills(
    client: TestClient, handlers: Handlers, tmp_path: Path
) -> None:
    """On the page, by the command, and by the command killed twice on the way: the same bytes."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = words("word_problems", killed)
    for num_answers in (15, 35):
        assert num_answers <= killed_at(num_answers, command, killed) < 60
    for out in (whole, killed):
        assert main(words("word_problems", out)) == 0
    assert len(list(whole.glob("answers/*.jsonl"))) == 60
    name = made_on(client, asked(source="word_problems"))
    assert timeless(killed) == timeless(whole) == timeless(handlers.library.folder(name))
