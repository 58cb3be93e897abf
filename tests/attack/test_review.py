"""What an anonymous visitor can do to the Review tab, and what another address gets meanwhile."""

from __future__ import annotations

import gc
import json
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.handlers import Handlers
from app.review import making
from app.settings import AppSettings
from mars_runtime.review.prompts import MAX_PROMPTS, Item, read_prompts
from mars_runtime.review.sets import About, ReviewSet
from mars_runtime.review.ways import read_ways
from tests.app.scripted_page import ScriptedBackend, make_handlers, page_served

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2 is an address"),
]

KEY = "a review key of a test"
SECONDS = 2.0
ATTACKER, OTHER, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.9"
NUM_ROWS = 2000
JSON = {"content-type": "application/json"}


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend("A scripted answer. " * 40)


@pytest.fixture
def handlers(tmp_path: Path, backend: ScriptedBackend) -> Handlers:
    data = tmp_path / "data"
    about = About("large", read_ways(["ar", "tau=0"], "tiny"), 0, {})
    review = ReviewSet.create(
        data / "review" / "large", about, [Item(f"p{n}", f"Prompt {n}") for n in range(60)]
    )
    for item, way in review.pairs():
        review.add_text(item, way, secrets.token_hex(40_000))
    review.summarize()
    return make_handlers(tmp_path, backend, port=0, data=str(data), review_key=KEY)


@pytest.fixture
def url(handlers: Handlers) -> Iterator[str]:
    with page_served(handlers) as found:
        yield found


def client_of(url: str, address: str, **more: Any) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=url, transport=transport, timeout=60, **more)


def assert_served(url: str, address: str = THIRD) -> None:
    """Review, a completion and a run, each within two seconds."""
    chat = {"model": "scripted", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    lane = {"prompt_ids": [1, 2, 3], "max_new_tokens": 4}
    run = {"model": "scripted", "lanes": [lane]}
    with client_of(url, address) as client:
        asks: list[Callable[[], httpx.Response]] = [
            lambda: client.get("review/sets"),
            lambda: client.get("review/sets/study/items/3"),
            lambda: client.post("v1/chat/completions", json=chat),
            lambda: client.post("v1/runs", json=run),
        ]
        for ask in asks:
            began = time.monotonic()
            answer = ask()
            assert answer.status_code == 200, answer.text
            assert time.monotonic() - began < SECONDS, answer.url


def rows_of(url: str, reviewer: str) -> list[dict[str, Any]]:
    """A row by each of 2,000 reviewers, with as many tags as there may be and all of its own."""
    with client_of(url, THIRD) as client:
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
    with client_of(url, THIRD) as client:
        set_id = client.get("review/sets/study").json()["id"]
    lines = [{"type": "review", "set": set_id, "name": "x"}, *rows]
    return "\n".join(map(json.dumps, lines))


def undoing(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All by one reviewer about one prompt, and each taken back."""
    own = [{**row, "reviewer": "one", "item": rows[0]["item"]} for row in rows]
    return own + [
        {**row, "id": f"u{row['id']}", "undoes": row["id"], "tags": [[], []]} for row in own
    ]


ATTACKS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "figures": lambda url: ("figures", {"rows": rows_of(url, "a")}),
    "undo": lambda url: ("figures", {"rows": undoing(rows_of(url, "a"))}),
    "merge": lambda url: (
        "merge",
        {"rows": rows_of(url, "a"), "text": file_of(url, rows_of(url, "b"))},
    ),
    "conflicts": lambda url: (
        "merge",
        {
            "rows": [{**row, "reviewer": "r" * 54 + row["reviewer"]} for row in rows_of(url, "a")],
            "text": file_of(
                url,
                [{**row, "reviewer": "r" * 54 + "a" + row["id"][1:], "note": row["id"]}
                 for row in rows_of(url, "b")],
            ),
        },
    ),
    "csv": lambda url: ("export", {"form": "csv", "rows": rows_of(url, "a")}),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_many_rows_keep_nobody_waiting(url: str, name: str) -> None:
    """Two posts, whose client leaves after a second; then one that is waited for."""
    path, body = ATTACKS[name](url)
    text = json.dumps(body).encode()

    def leave() -> None:
        with client_of(url, ATTACKER) as client, suppress(httpx.TimeoutException):
            client.post(f"review/sets/study/{path}", content=text, headers=JSON, timeout=1)

    posts = [threading.Thread(target=leave) for _ in range(2)]
    for post in posts:
        post.start()
    assert_served(url)
    for post in posts:
        post.join(30)
    assert_served(url)
    with client_of(url, ATTACKER) as client:
        answer = client.post(f"review/sets/study/{path}", content=text, headers=JSON)
    assert answer.status_code == 200, answer.text


def test_many_seals_are_opened_at_once(url: str) -> None:
    with client_of(url, ATTACKER) as client:
        sealed = client.get("review/sets/large/masked/0-1/0").json()["sealed"]
        began = time.monotonic()
        answer = client.post("review/sets/large/reveal", json={"sealed": [sealed] * NUM_ROWS})
        assert len(answer.json()["sides"]) == NUM_ROWS
    assert time.monotonic() - began < 3 * SECONDS


def test_lines_past_the_limit_are_not_read() -> None:
    began = time.monotonic()
    found = read_prompts("\n".join(f"p{n}" for n in range(400_000)))
    assert (len(found.items), len(found.faults)) == (MAX_PROMPTS, 1)
    assert time.monotonic() - began < SECONDS


ASKED = {"prompts": "one\ntwo", "ways": ["ar", "tau=0,B=4"], "max_new_tokens": 64, "name": "x"}


def begin(url: str, address: str, **changes: Any) -> httpx.Response:
    with client_of(url, address) as client:
        body = json.dumps({**ASKED, **changes})
        return client.post("review/make", content=body, headers=JSON)


def steer(url: str, address: str, name: str, do: str) -> None:
    with client_of(url, address) as client:
        assert client.post(f"review/make/{name}", json={"do": do}).status_code == 200


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_paused_sets_take_no_place_and_end_when_they_are_left(
    url: str, handlers: Handlers, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.forward_seconds = 0.05
    names = []
    for number in range(making.MAX_JOBS):
        answer = begin(url, f"127.0.1.{number + 1}")
        assert answer.status_code == 200, answer.text
        names.append(answer.json()["name"])
        steer(url, f"127.0.1.{number + 1}", names[-1], "pause")
    again = begin(url, "127.0.1.1")
    assert again.status_code == 400  # an address has one at a time
    assert begin(url, THIRD).status_code == 200
    assert_served(url)
    monkeypatch.setattr(making, "AWAY_SECONDS", 0.3)
    jobs = handlers.making._jobs
    until(lambda: all(jobs[name].state == "stopped" for name in names))
    until(lambda: not handlers.library._held)
    assert begin(url, "127.0.1.1").status_code == 200
    until(lambda: not handlers.library._held)  # also those that are made and left


def test_a_pause_of_the_process_is_no_absence_of_its_owner(tmp_path: Path) -> None:
    asked = making.Asked("a", [], ())
    job = making.Job("name", tmp_path, asked, THIRD)
    job.seen -= 10 * making.AWAY_SECONDS
    job.checked -= 10 * making.AWAY_SECONDS
    assert not job.is_left()
    job.seen -= 10 * making.AWAY_SECONDS
    assert job.is_left()


def test_a_set_whose_maker_fails_gives_its_place_back(
    url: str, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = begin(url, ATTACKER, name="\ud800")
    assert refused.status_code == 400
    assert "half of a character" in refused.json()["detail"]

    def fail(*given: object) -> None:
        raise RuntimeError("the words of a prompt")

    with monkeypatch.context() as patched:
        patched.setattr(making, "begin", fail)
        name = begin(url, ATTACKER).json()["name"]
        until(lambda: handlers.making.progress(name)["state"] == "failed")
    assert handlers.making.progress(name)["error"] == making.FAULT
    assert begin(url, ATTACKER).status_code == 200


def test_past_the_limit_of_guesses_no_key_of_that_address_is_compared(url: str) -> None:
    path = "review/sets/study/judgements"
    with client_of(url, ATTACKER) as guesser, client_of(url, THIRD) as owner:
        codes = [
            guesser.get(path, headers={"x-review-key": f"no{n}"}).status_code for n in range(11)
        ]
        assert codes == [401] * 10 + [429]
        refused = guesser.get(path, headers={"x-review-key": KEY})
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert owner.get(path, headers={"x-review-key": KEY}).status_code == 200
    assert_served(url)


def resident() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def test_bodies_that_never_end_have_a_share_of_memory(url: str) -> None:
    """25 connections of one address declare 16 MB each and stop before the end."""
    most = AppSettings().max_review_bytes
    head = (
        f"POST /review/sets/study/figures HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
        f"\r\ncontent-length: {most}\r\n\r\n"
    ).encode()
    part = b" " * (most - 1)
    at = urlsplit(url)
    open_, before = [], resident()

    def send() -> None:
        made = socket.create_connection((str(at.hostname), int(at.port or 0)), 20, (ATTACKER, 0))
        open_.append(made)
        with suppress(OSError):  # refused
            made.sendall(head)
            made.sendall(part)

    senders = [threading.Thread(target=send) for _ in range(25)]
    for sender in senders:
        sender.start()
    try:
        assert_served(url)
        for sender in senders:
            sender.join(60)
        assert resident() - before < 120_000_000
        assert_served(url)
    finally:
        for made in open_:
            made.close()


def test_refused_bodies_are_freed_at_once(url: str) -> None:
    """Without waiting for the garbage collector, which may be a long time away."""
    body = json.dumps({"sealed": "A" * 10_000_000}).encode()
    with client_of(url, ATTACKER) as client:
        assert client.post("review/sets", content=body, headers=JSON).status_code == 400
        gc.collect()
        before = resident()
        gc.disable()
        try:
            for _ in range(10):
                assert client.post("review/sets", content=body, headers=JSON).status_code == 400
        finally:
            gc.enable()
    assert resident() - before < 100_000_000


def test_many_reads_of_a_large_set_delay_nobody_else(url: str) -> None:
    codes: list[int] = []

    def read(number: int) -> None:
        with client_of(url, ATTACKER) as client:
            codes.append(client.get(f"review/sets/large/items/{number % 60}").status_code)

    readers = [threading.Thread(target=read, args=[number]) for number in range(100)]
    for reader in readers:
        reader.start()
    assert_served(url)
    for reader in readers:
        reader.join(60)
    assert len(codes) == 100
    assert set(codes) <= {200, 429}
    assert_served(url)


def test_tiny_sets_push_out_only_their_own_address(url: str) -> None:
    def samples(number: int) -> dict[str, Any]:
        line = json.dumps({"arguments": [["Say it."]], "resps": [[f"answer {number}"]]})
        return {"samples": [{"name": name, "text": line} for name in ("a", "b")], "name": "tiny"}

    with client_of(url, THIRD) as client, client_of(url, ATTACKER) as attacker:
        kept = client.post("review/sets", json=samples(0)).json()["name"]
        names = [attacker.post("review/sets", json=samples(n)).json()["name"] for n in range(45)]
        assert client.get(f"review/sets/{kept}").status_code == 200
        assert attacker.get(f"review/sets/{names[0]}").status_code == 400
        assert attacker.get(f"review/sets/{names[-1]}").status_code == 200
