"""Sets that the page makes are those that the command makes, and a server that dies costs none.

The bundled mars-tiny decodes; no browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_page import eventually
from starlette.testclient import TestClient

from app.engines.engines import Engines
from app.handlers import Handlers, make_handlers
from app.review.library import Library
from app.review.making import Making
from app.review.routes import make_review
from app.settings import AppSettings
from tests.review.made_sets import CHECKPOINT, DTYPE, MOST, NAME, WAYS, timeless


@pytest.fixture(scope="module")
def handlers() -> Iterator[Handlers]:
    made = make_handlers(Engines(AppSettings(checkpoint=CHECKPOINT, dtype=DTYPE)))
    yield made
    made.engines.close()


def client_of(handlers: Handlers, library: Library, making: Making) -> TestClient:
    return TestClient(make_review(library, making, handlers.engines.settings))


@pytest.fixture(scope="module")
def client(handlers: Handlers) -> TestClient:
    return client_of(handlers, handlers.library, handlers.making)


def asked(**prompts: str) -> dict[str, Any]:
    """What the page posts."""
    return {**prompts, "ways": WAYS, "name": NAME, "max_new_tokens": MOST}


def made_on(client: TestClient, values: dict[str, Any]) -> str:
    """The name of the set once it is there."""
    answer = client.post("/review/make", json=values).json()
    assert answer["faults"] == []
    name: str = answer["name"]
    progress = until(client, name, lambda values: values["state"] != "making")
    assert (progress["state"], progress["refused"]) == ("done", [])
    return name


def until(client: TestClient, name: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait for a condition of the set's progress, and return that."""
    progress: list[dict[str, Any]] = []

    def is_now() -> bool:
        progress.append(client.get(f"/review/make/{name}").json())
        return is_so(progress[-1])

    assert eventually(is_now, 300)
    return progress[-1]


def test_a_server_that_is_started_again_goes_on_with_what_a_browser_kept(
    client: TestClient, handlers: Handlers, tmp_path: Path
) -> None:
    """What came before is not made again, and what is left is what is left without a kill."""
    name = client.post("/review/make", json=asked(source="word_problems")).json()["name"]
    until(client, name, lambda progress: progress.get("num_done", 0) >= 5)
    client.post(f"/review/make/{name}", json={"do": "stop"})
    sealed = client.get(f"/review/sets/{name}/sealed").json()["sealed"]

    library = Library("")
    anew = client_of(handlers, library, Making(handlers.engines, library))
    assert anew.get(f"/review/make/{name}").json()["state"] == "gone"
    assert anew.post("/review/make", json={"set": name}).status_code == 400
    assert anew.post("/review/sets", json={"sealed": sealed}).json() == {"name": name}
    remaining = {
        path.name: path.stat().st_mtime_ns for path in library.folder(name).glob("answers/*")
    }
    assert 5 <= len(remaining) < 60
    assert made_on(anew, {"set": name}) == name
    whole = made_on(client, asked(source="word_problems"))
    assert timeless(library.folder(name)) == timeless(handlers.library.folder(whole))
    for path in library.folder(name).glob("answers/*"):
        assert remaining.get(path.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
