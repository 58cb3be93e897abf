"""Clients that do not read, requests that never end, more connections than one client needs."""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from app.ui.files import FILES, file_address
from mars_runtime.serving import server
from tests.app.scripted_page import (
    TEXT,
    ScriptedBackend,
    eventually,
    make_handlers,
    page_served,
)
from tests.attack.attacked import Place, connection, place_of, resident

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2, /proc")

NUM_READERS, HAS_MEMORY = 60, 30_000_000  # bytes
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
WHOLE = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
KINDS = {
    "silent": b"",
    "head": HEAD,
    "body": HEAD + b"content-length: 400\r\n\r\n{",
    "chunked": HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    "kept alive": WHOLE + b"GET /",
    "pipelined": WHOLE + HEAD + b"content-length: 400\r\n\r\n{",
    "large": HEAD + b"content-length: 99999999999999\r\n\r\n{",
    "page": b"POST /gradio_api/run/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 400\r\n"
    b"content-type: application/json\r\n\r\n{",
}
ASKED = {"model": "scripted", "method": "ar", "messages": [{"role": "user", "content": "Hi"}]}


def reader(stack: ExitStack, place: Place, name: str = "plotly.js") -> socket.socket:
    """A client that has asked for a file, unpacked, and has read nothing."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(place)
    client.sendall(f"GET /{file_address(name)} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    return client


def rest(client: socket.socket, pause: float = 0.0) -> int:
    """Return how many bytes come until the server closes the connection or is silent for long."""
    client.settimeout(3)
    num_bytes = 0
    with suppress(TimeoutError, ConnectionResetError):
        while new := client.recv(200_000):
            num_bytes += len(new)
            time.sleep(pause)
    return num_bytes


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


def test_a_reader_that_never_reads_is_dropped_and_a_slow_one_served(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.5)
    size = len(FILES["plotly.js"][1]().encode())
    with ExitStack() as stack:
        stuck = reader(stack, place_of(url))
        assert rest(reader(stack, place_of(url)), pause=0.001) > size
        assert 0 < rest(stuck) < size


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
        assert refused.endswith(server.CROWDED)
        assert b" 200 " in answer(place, "127.0.0.2")
    assert eventually(lambda: b" 200 " in answer(place))


def test_a_full_server_serves_an_address_with_fewer_connections(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the place of the oldest connection of the address that has most."""
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 5)
    with ExitStack() as stack:
        few = crowd(stack, place, 2, "127.0.0.3")
        most = crowd(stack, place, 3, "127.0.0.4")
        other = crowd(stack, place, 1, "127.0.0.2")
        assert b" 503 " in answer(place, "127.0.0.4")
        for client in (*few, *other, *most[1:]):
            assert b" 200 " in ask(client)
        assert ask(most[0]) == b""


def test_behind_a_trusted_proxy_all_share_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_OF_ADDRESS", 2)
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0, num_proxies=1)
    with page_served(handlers) as url, ExitStack() as stack:
        crowd(stack, place_of(url), 5)


@pytest.fixture
def seconds(is_full_attack: bool, monkeypatch: pytest.MonkeyPatch) -> float:
    """The seconds that a request has, the real ones in full length."""
    if not is_full_attack:
        for name in ("HEAD_SECONDS", "BODY_SECONDS"):
            monkeypatch.setattr(server, name, 1.0)
    monkeypatch.setattr(server, "MAX_BODY_SECONDS", 12.0 if is_full_attack else 3.0)
    return server.HEAD_SECONDS


@pytest.fixture
def pause(is_full_attack: bool) -> float:
    """An answer of 40 tokens takes longer than a request may."""
    return 0.5 if is_full_attack else 0.05


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


def test_forty_trickling_connections_are_ended(place: Place, seconds: float) -> None:
    """Within half as long again as they may take; other requests from the address are served."""
    limit = max(4.5, 1.5 * seconds)
    ended: list[tuple[str, float, bytes]] = []

    def trickle(kind: str) -> None:
        ended.append((kind, *lifetime(place, kind, 3 * limit)))

    clients = [threading.Thread(target=trickle, args=[kind]) for kind in list(KINDS) * 5]
    for client in clients:
        client.start()
    url = "http://{}:{}/v1/chat/completions".format(*place)
    served = httpx.post(url, json={**ASKED, "max_tokens": 2}, timeout=60)
    assert served.status_code == 200, served.text
    for client in clients:
        client.join(60)
    assert len(ended) == 40
    for kind, took, heard in ended:
        assert seconds - 0.1 < took < limit, kind
        is_refused_at_once = kind == "page" and b" 404 " in heard
        assert (b" 408 " in heard) == (kind != "silent" and not is_refused_at_once), (kind, heard)


def test_a_stream_may_take_longer_than_a_request(place: Place, seconds: float) -> None:
    began = time.monotonic()
    url = "http://{}:{}/v1/chat/completions".format(*place)
    body = {**ASKED, "max_tokens": 40, "stream": True}
    with httpx.stream("POST", url, json=body, timeout=60) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert time.monotonic() - began > seconds


def test_a_body_has_a_second_more_for_each_50_kb_that_came(place: Place, seconds: float) -> None:
    """A slow connection within the limit is served; a declared length does not extend the time."""
    assert [server.body_seconds(number) - server.BODY_SECONDS for number in (0, 100_000)] == [0, 2]
    assert server.body_seconds(10**20) == server.MAX_BODY_SECONDS
    size = 100_000
    body = b'{"model": "' + b"x" * (size - 13) + b'"}'
    with connection(place) as client:
        client.sendall(HEAD + b"content-length: %d\r\n\r\n" % size + body[: size // 2])
        time.sleep(seconds + 0.5 * (size / 2) / server.BODY_RATE)
        client.sendall(body[size // 2 :])
        assert client.recv(65536).split()[1] == b"400"
    began = time.monotonic()
    with connection(place) as client:
        client.sendall(HEAD + b"content-length: 200000\r\n\r\n" + b" " * 1000)
        assert client.recv(65536).split()[1] == b"408"
    assert time.monotonic() - began < seconds + 2.5
