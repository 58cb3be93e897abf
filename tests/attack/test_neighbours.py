"""What another address gets while a server is under attack, and the server's memory afterwards. The
page is served by a separate process with a scripted model.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from app.settings import AppSettings
from app.ui.files import file_address
from tests.app.scripted_page import eventually
from tests.attack.attacked import (
    Place,
    assert_served,
    client_of,
    connection,
    place_of,
    resident,
)
from tests.attack.test_connections import reader
from tests.attack.test_farewell import started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2, /proc"),
]

ATTACK_SECONDS = 6.0
CALM_SECONDS = 60.0  # in which memory comes back
MEMORY = 20_000_000  # bytes
ATTACKERS = [f"127.0.2.{number}" for number in range(1, 6)]
CALLS = "gradio_api/component_server"
Stop = threading.Event
Attack = Callable[[str, str, Stop], None]


def get_forever(path: str) -> Attack:
    """Ask for the same again and again."""

    def attack(url: str, address: str, stop: Stop) -> None:
        with client_of(url, address) as client:
            while not stop.is_set():
                with suppress(httpx.HTTPError):
                    client.get(path, headers={"accept-encoding": "gzip"})

    return attack


def connected(number: int, sent: bytes, address: str, place: Place, stop: Stop) -> None:
    """Open connections, send the same on each, read nothing."""
    with ExitStack() as stack:
        for _ in range(number):
            with suppress(OSError):
                made = stack.enter_context(connection(place, address))
                made.sendall(sent)
            if stop.is_set():
                return
        stop.wait()


def unfinished(url: str, address: str, stop: Stop) -> None:
    """Bodies of imported runs that lack their last byte."""
    most = 2 * AppSettings().max_import_bytes
    head = f"POST /{CALLS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {most}\r\n"
    body = b"content-type: application/json\r\n\r\n" + b" " * (most - 1)
    connected(5, head.encode() + body, address, place_of(url), stop)


def never_reading(url: str, address: str, stop: Stop) -> None:
    with ExitStack() as stack:
        for _ in range(12):
            reader(stack, place_of(url))
        stop.wait()


def connecting(url: str, address: str, stop: Stop) -> None:
    connected(200, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n", address, place_of(url), stop)


KINDS: dict[str, Attack] = {
    "readers that never read": never_reading,
    "unfinished bodies": unfinished,
    "connections": connecting,
    "pages": get_forever(""),
    "files": get_forever(file_address("plotly.js")),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Process and address of a page."""
    with started(tmp_path_factory.mktemp("data")) as (process, url):
        yield process.pid, url


def under(url: str, attack: Attack) -> None:
    """Attack from several addresses while another one uses the server."""
    stop = Stop()
    attackers = [
        threading.Thread(target=attack, args=(url, address, stop), daemon=True)
        for address in ATTACKERS
    ]
    for attacker in attackers:
        attacker.start()
    try:
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end:
            assert_served(url)
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join(120)
    assert not any(attacker.is_alive() for attacker in attackers)


@pytest.mark.parametrize("name", KINDS)
def test_another_address_is_served_and_memory_comes_back(
    server: tuple[int, str], name: str
) -> None:
    process, url = server
    under(url, KINDS[name])  # what is cached at first use is there
    before = resident(process)
    under(url, KINDS[name])
    assert_served(url)
    assert eventually(lambda: resident(process) - before <= MEMORY, CALM_SECONDS)
