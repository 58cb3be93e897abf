"""Clients that do not read, requests that never end, more connections than one client needs."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack, suppress

import httpx
import pytest

from app.ui.files import file_address
from mars_runtime.serving import limits, server
from tests.app.scripted_page import eventually
from tests.attack.attacked import Place, connection, place_of, resident

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2, /proc")

NUM_READERS, HAS_MEMORY = 60, 30_000_000  # bytes
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
)
WHOLE = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
KINDS = {
    "silent": b"",
    "head": HEAD,
    "body": HEAD + b"content-length: 400\r\n\r\n{",
    "chunked": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    "pipelined": WHOLE + HEAD + b"content-length: 400\r\n\r\n{",
}
ASKED = {"model": "scripted", "method": "ar", "messages": [{"role": "user", "content": "Hi"}]}


def reader(stack: ExitStack, place: Place, name: str = "plotly.js") -> socket.socket:
    """A client that has asked for a file, unpacked, and has read nothing."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(place)
    client.sendall(f"GET /{file_address(name)} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    return client


def test_readers_that_never_read_hold_little_memory(url: str) -> None:
    path = url + file_address("plotly.js")
    for encoding in ("identity", "gzip"):
        assert httpx.get(path, headers={"accept-encoding": encoding}).status_code == 200
    before = resident()
    with ExitStack() as stack:
        for _ in range(NUM_READERS):
            reader(stack, place_of(url))
        for _ in range(20):  # the server answers the readers in between
            assert httpx.get(f"{url}health", timeout=30).status_code == 200
        assert resident() - before < HAS_MEMORY
        assert httpx.get(path, timeout=30).status_code == 200


def ask(client: socket.socket) -> bytes:
    """Return the answer on a connection that stays open; short where the server closes it."""
    heard = b""
    with suppress(ConnectionError):
        client.sendall(HEALTH)
        while not heard.endswith(b"}") and (new := client.recv(65536)):
            heard += new
    return heard


def crowd(
    stack: ExitStack, place: Place, number: int, address: str = "127.0.0.1"
) -> list[socket.socket]:
    """Open connections from an address that get an answer each."""
    clients = [stack.enter_context(connection(place, address)) for _ in range(number)]
    for client in clients:
        assert b" 200 " in ask(client)
    return clients


def answer(place: Place, address: str = "127.0.0.1") -> bytes:
    with connection(place, address) as client:
        return ask(client)


def test_connections_of_an_address_are_bounded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_OF_ADDRESS", 5)
    with ExitStack() as stack:
        crowd(stack, place, 5)
        refused = answer(place)
        assert b" 503 " in refused
        assert b" 200 " in answer(place, "127.0.0.2")
    assert eventually(lambda: b" 200 " in answer(place))


@pytest.fixture
def pause() -> float:
    """An answer of 40 tokens takes longer than a request may."""
    return 0.05


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds that a request has."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(limits, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(limits, "MAX_BODY_SECONDS", 3.0)
    return 1.0


def lifetime(place: Place, kind: str, limit: float) -> tuple[float, bytes]:
    """Return how long the server keeps a connection on which little comes, and what it answers."""
    began, heard = time.monotonic(), b""
    with connection(place) as client:
        client.settimeout(0.2)
        client.sendall(KINDS[kind])
        while time.monotonic() - began < limit:
            try:
                heard += (new := client.recv(65536))
                if not new:
                    break
            except TimeoutError:
                if kind != "silent":
                    client.send(b"1\r\nx\r\n" if kind == "chunked" else b" ")
            except OSError:
                break
    return time.monotonic() - began, heard


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_never_ends_is_ended(place: Place, seconds: float, kind: str) -> None:
    took, heard = lifetime(place, kind, 8)
    assert seconds - 0.1 < took < 6
    assert (b" 408 " in heard) == (kind not in ("silent", "head"))


def test_a_stream_may_take_longer_than_a_request(place: Place, seconds: float) -> None:
    began = time.monotonic()
    url = "http://{}:{}/v1/chat/completions".format(*place)
    body = {**ASKED, "max_tokens": 40, "stream": True}
    with httpx.stream("POST", url, json=body, timeout=60) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert time.monotonic() - began > seconds


def test_a_body_has_a_second_more_for_each_50_kb_that_came(place: Place, seconds: float) -> None:
    size = 100_000
    with connection(place) as client:
        client.sendall(HEAD + b"content-length: %d\r\n\r\n" % size + b" " * (size // 2))
        time.sleep(seconds + 0.5 * (size / 2) / limits.BODY_RATE)
        client.sendall(b" " * (size // 2))
        assert client.recv(65536).split()[1] == b"400"
