"""What an anonymous visitor can do to the Review tab, and what another address gets at the same
time.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.handlers import Handlers
from app.review import making
from app.review.library import LARGE
from app.settings import AppSettings
from mars_runtime.review.masked import MAX_SEALED
from mars_runtime.review.prompts import Item
from tests.app.review_page import write_set
from tests.app.scripted_page import ScriptedBackend, eventually, make_handlers, page_served
from tests.attack.attacked import (
    ATTACKER,
    JSON,
    KEY,
    OTHER,
    assert_served,
    client_of,
    connection,
    place_of,
    resident,
)

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2 is an address"),
]

NUM_ROWS = 2000
ITEMS = [Item(f"p{n}", f"Prompt {n}") for n in range(180)]


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend("A scripted answer. " * 40)


@pytest.fixture
def handlers(tmp_path: Path, backend: ScriptedBackend) -> Handlers:
    return make_handlers(tmp_path, backend, port=0, data=str(tmp_path / "data"), review_key=KEY)


@pytest.fixture
def url(handlers: Handlers) -> Iterator[str]:
    with page_served(handlers) as url:
        yield url


@pytest.fixture
def large(tmp_path: Path) -> None:
    """An owner's set with answers of 80 kB each."""
    folder = tmp_path / "data" / "review" / "large"
    write_set(folder, ["ar", "tau=0"], ITEMS[:60], lambda *_: secrets.token_hex(40_000)).summarize()


def rows_of(url: str, reviewer: str) -> list[dict[str, Any]]:
    """A row by each of 2,000 reviewers, with as many tags as there may be and all of its own."""
    with client_of(url, OTHER) as client:
        about = client.get("review/sets/study").json()
    left, right = (way["name"] for way in about["ways"][:2])
    items = [item["id"] for item in about["items"]]
    return [
        {
            "id": f"{reviewer}{n}",
            "reviewer": f"{reviewer}{n}",
            "item": items[n % len(items)],
            **{"left": left, "right": right, "preference": ("left", "right")[n % 2]},
            "tags": [[f"{side}{n}-{tag}" for tag in range(12)] for side in "lr"],
            "time": f"{n:06}",
        }
        for n in range(NUM_ROWS)
    ]


def file_of(url: str, rows: list[dict[str, Any]]) -> str:
    with client_of(url, OTHER) as client:
        set_id = client.get("review/sets/study").json()["id"]
    lines = [{"type": "review", "set": set_id, "name": "x"}, *rows]
    return "\n".join(map(json.dumps, lines))


def undoing(url: str) -> list[dict[str, Any]]:
    """All by one reviewer about one prompt, and each undone."""
    rows = rows_of(url, "a")
    own_rows = [{**row, "reviewer": "one", "item": rows[0]["item"]} for row in rows]
    return own_rows + [
        {**row, "id": f"u{row['id']}", "undoes": row["id"], "tags": [[], []]} for row in own_rows
    ]


def conflicting(url: str, note: str = "") -> list[dict[str, Any]]:
    return [
        {**row, "id": note + row["id"], "reviewer": "r" * 54 + row["reviewer"], "note": note}
        for row in rows_of(url, "a")
    ]


ATTACKS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "undo": ("figures", lambda url: {"rows": undoing(url)}),
    "conflicts": (
        "merge",
        lambda url: {"rows": conflicting(url), "text": file_of(url, conflicting(url, "b"))},
    ),
    "csv": ("export", lambda url: {"form": "csv", "rows": rows_of(url, "a")}),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_many_rows_delay_no_other_request(url: str, name: str) -> None:
    """Two posts from a client that disconnects after a second; then one that waits."""
    path, make = ATTACKS[name]
    text = json.dumps(make(url)).encode()

    def post(seconds: float) -> httpx.Response:
        with client_of(url) as client:
            where = f"review/sets/study/{path}"
            return client.post(where, content=text, headers=JSON, timeout=seconds)

    def leave() -> None:
        with suppress(httpx.TimeoutException):
            post(1)

    posts = [threading.Thread(target=leave) for _ in range(2)]
    for item in posts:
        item.start()
    assert_served(url)
    for item in posts:
        item.join(30)
    assert_served(url)
    answer = post(60)
    assert answer.status_code == 200, answer.text


def begin(url: str, address: str, **changes: Any) -> httpx.Response:
    request = {
        "prompts": "one\ntwo",
        "ways": ["ar", "tau=0,B=4"],
        "max_new_tokens": 64,
        "name": "x",
    }
    with client_of(url, address) as client:
        body = json.dumps({**request, **changes})
        return client.post("review/make", content=body, headers=JSON)


def test_paused_sets_take_no_place_and_end_when_they_are_left(
    url: str, handlers: Handlers, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.forward_seconds = 0.05
    paused = {f"127.0.1.{number + 1}": "" for number in range(making.MAX_JOBS)}
    for address in paused:
        answer = begin(url, address)
        assert answer.status_code == 200, answer.text
        paused[address] = answer.json()["name"]
        assert handlers.making.steer(paused[address], "pause")["state"] == "paused"
    assert begin(url, "127.0.1.1").status_code == 400  # an address has one at a time
    assert begin(url, OTHER).status_code == 200
    assert_served(url)
    monkeypatch.setattr(making, "AWAY_SECONDS", 0.3)
    assert eventually(lambda: begin(url, "127.0.1.1").status_code == 200)
    assert handlers.making.progress(paused["127.0.1.1"])["state"] == "stopped"


def test_past_the_limit_of_guesses_no_key_of_that_address_is_compared(url: str) -> None:
    path = "review/sets/study/judgements"
    with client_of(url) as guesser, client_of(url, OTHER) as owner:
        codes = [
            guesser.get(path, headers={"x-review-key": f"no{n}"}).status_code for n in range(11)
        ]
        assert codes == [401] * 10 + [429]
        refused = guesser.get(path, headers={"x-review-key": KEY})
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert owner.get(path, headers={"x-review-key": KEY}).status_code == 200
    assert_served(url)


def test_bodies_that_never_end_have_a_share_of_memory(url: str) -> None:
    """25 connections of one address declare 16 MB each and stop before the end."""
    most = AppSettings().max_review_bytes
    head = (
        f"POST /review/sets/study/figures HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
        f"\r\ncontent-length: {most}\r\n\r\n"
    ).encode()
    rest, before = b" " * (most - 1), resident()
    with ExitStack() as stack:

        def send() -> None:
            made = stack.enter_context(connection(place_of(url), ATTACKER))
            with suppress(OSError):  # refused
                made.sendall(head)
                made.sendall(rest)

        senders = [threading.Thread(target=send) for _ in range(25)]
        for sender in senders:
            sender.start()
        assert_served(url)
        for sender in senders:
            sender.join(60)
        assert resident() - before < 120_000_000
        assert_served(url)


def test_tiny_sets_push_out_only_their_own_address(url: str) -> None:
    def samples(number: int) -> dict[str, Any]:
        line = json.dumps({"arguments": [["Say it."]], "resps": [[f"answer {number}"]]})
        return {"samples": [{"name": name, "text": line} for name in ("a", "b")], "name": "tiny"}

    with client_of(url, OTHER) as client, client_of(url) as attacker:
        stored = client.post("review/sets", json=samples(0)).json()["name"]
        names = [attacker.post("review/sets", json=samples(n)).json()["name"] for n in range(45)]
        assert client.get(f"review/sets/{stored}").status_code == 200
        assert attacker.get(f"review/sets/{names[0]}").status_code == 400
        assert attacker.get(f"review/sets/{names[-1]}").status_code == 200


@pytest.mark.parametrize("share", [0.45, 0.55])
def test_what_a_browser_keeps_the_server_accepts_again(tmp_path: Path, share: float) -> None:
    """A set of 180 prompts with five methods; its packed answers take a share of the limit."""
    before = make_handlers(tmp_path, ScriptedBackend(), port=0)
    name, folder = before.library.place()
    ways = ["ar", "tau=0", "tau=0.3", "tau=0.6", "tau=0.9"]
    size = int(share * MAX_SEALED) // (len(ITEMS) * len(ways))
    write_set(folder, ways, ITEMS, lambda *_: secrets.token_hex(size))
    with page_served(before) as url, client_of(url) as client:
        answer = client.get(f"review/sets/{name}/sealed")
        assert client.get(f"review/sets/{name}").status_code == 200
    if share > 0.5:
        assert answer.json()["detail"] == LARGE
        return
    after = make_handlers(tmp_path, ScriptedBackend(), port=0)
    with page_served(after) as url, client_of(url) as client:  # after a restart
        assert client.get(f"review/sets/{name}").status_code == 400
        brought = client.post("review/sets", json=answer.json())
        assert brought.json() == {"name": name}, brought.text
        body = json.dumps({"sealed": "a" * MAX_SEALED})
        largest = client.post("review/sets", content=body, headers=JSON)
        assert largest.status_code == 400
        assert "large" not in largest.text  # refused for what it is
