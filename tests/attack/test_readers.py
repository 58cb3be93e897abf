"""Clients that do not read what they asked for, and more connections than one client needs."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.ui.files import FILES, file_address
from mars_runtime.serving import server
from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from tests.serving.scripted_server import Oracle, serving

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2, /proc")

Place = tuple[str, int]
NUM_READERS = 60
HAS_MEMORY = 30_000_000  # bytes
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def place_of(url: str) -> Place:
    at = urlsplit(url)
    return str(at.hostname), int(at.port or 0)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Place]:
    with page_served(make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)) as url:
        yield place_of(url)


@pytest.fixture(params=["page", "endpoint"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "page":
        yield request.getfixturevalue("page")
        return
    with serving(tmp_path, Oracle()) as found:
        yield place_of(found.address)


def resident() -> int:
    """Bytes of memory of this process, in which the server runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def reader(stack: ExitStack, place: Place, name: str = "plotly.js") -> socket.socket:
    """A client that has asked for a file, unpacked, and has read nothing."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(place)
    client.sendall(f"GET /{file_address(name)} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    return client


def rest(client: socket.socket, pause: float = 0.0) -> int:
    """How many bytes come until the server closes the connection or is silent for 3 seconds."""
    client.settimeout(3)
    num_bytes = 0
    try:
        while new := client.recv(200_000):
            num_bytes += len(new)
            time.sleep(pause)
    except (TimeoutError, ConnectionResetError):
        pass
    return num_bytes


def test_readers_that_never_read_hold_little_memory(page: Place) -> None:
    url = "http://{}:{}/{}".format(*page, file_address("plotly.js"))
    for encoding in ("identity", "gzip"):
        assert httpx.get(url, headers={"accept-encoding": encoding}).status_code == 200
    before = resident()
    with ExitStack() as stack:
        for _ in range(NUM_READERS):
            reader(stack, page)
        time.sleep(2)
        assert resident() - before < HAS_MEMORY
        assert httpx.get(url, timeout=30).status_code == 200


def test_a_reader_that_never_reads_is_dropped(page: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.5)
    size = len(FILES["plotly.js"][1]().encode())
    with ExitStack() as stack:
        stuck = reader(stack, page)
        time.sleep(2)
        assert 0 < rest(stuck) < size


def test_a_slow_reader_gets_the_whole_file(page: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.5)
    size = len(FILES["plotly.js"][1]().encode())
    with ExitStack() as stack:
        assert rest(reader(stack, page), pause=0.001) > size


def answer(place: Place, address: str) -> bytes:
    """What a client at an address is answered first on a connection."""
    with socket.create_connection(place, 30, (address, 0)) as client:
        client.sendall(HEALTH)
        return client.recv(65536)


def ask(client: socket.socket) -> bytes:
    """The answer on a connection that stays open; short where the server closed it."""
    heard = b""
    with suppress(ConnectionError):
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        while not heard.endswith(b"}") and (new := client.recv(65536)):
            heard += new
    return heard


def crowd(
    stack: ExitStack, place: Place, number: int, address: str = "127.0.0.1"
) -> list[socket.socket]:
    """Connections of an address that have had an answer each."""
    clients = []
    for _ in range(number):
        client = stack.enter_context(socket.create_connection(place, 30, (address, 0)))
        assert b" 200 " in ask(client)
        clients.append(client)
    return clients


def test_connections_of_an_address_are_bounded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_OF_ADDRESS", 5)
    with ExitStack() as stack:
        crowd(stack, place, 5)
        refused = answer(place, "127.0.0.1")
        assert b" 503 " in refused
        assert refused.endswith(server.CROWDED)
        assert b" 200 " in answer(place, "127.0.0.2")
    deadline = time.monotonic() + 30
    while b" 200 " not in answer(place, "127.0.0.1"):
        assert time.monotonic() < deadline


def test_connections_are_bounded_in_all(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 5)
    with ExitStack() as stack:
        crowd(stack, place, 5)
        assert b" 503 " in answer(place, "127.0.0.1")


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
