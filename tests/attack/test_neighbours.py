"""What another address gets while a server is under attack, and the server's memory after it.

The page is served by a process of its own, whose model is scripted.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from app.settings import AppSettings
from app.ui.files import file_address
from tests.attack.test_farewell import PAGE, ROOT
from tests.attack.test_readers import Place, place_of, reader
from tests.attack.test_review import ATTACKS, JSON, KEY, assert_served, client_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2, /proc"),
]

ATTACK_SECONDS = 6.0
CALM_SECONDS = 60.0  # in which memory comes back
MEMORY = 20_000_000  # bytes
ATTACKERS = [f"127.0.2.{number}" for number in range(1, 6)]
Stop = threading.Event
Attack = Callable[[str, str, Stop], None]


def post_forever(path: str, contents: Callable[[str], bytes], **headers: str) -> Attack:
    """Post the same again and again."""

    def attack(url: str, address: str, stop: Stop) -> None:
        content = contents(url)
        with client_of(url, address) as client:
            while not stop.is_set():
                with suppress(httpx.HTTPError):
                    client.post(path, content=content, headers={**JSON, **headers})

    return attack


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
                made = stack.enter_context(socket.create_connection(place, 5, (address, 0)))
                made.sendall(sent)
            if stop.is_set():
                return
        stop.wait()


def unfinished(url: str, address: str, stop: Stop) -> None:
    """Bodies of Review that lack their last byte."""
    most = AppSettings().max_review_bytes
    head = f"POST /review/sets/study/figures HTTP/1.1\r\nhost: x\r\ncontent-length: {most}\r\n"
    body = b"content-type: application/json\r\n\r\n" + b" " * (most - 1)
    connected(5, head.encode() + body, address, place_of(url), stop)


def never_reading(url: str, address: str, stop: Stop) -> None:
    with ExitStack() as stack:
        for _ in range(12):
            reader(stack, place_of(url))
        stop.wait()


def connecting(url: str, address: str, stop: Stop) -> None:
    connected(200, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", address, place_of(url), stop)


def heavy(name: str) -> Attack:
    """Review's heavy work, as ``test_review.py`` has it."""

    def attack(url: str, address: str, stop: Stop) -> None:
        path, body = ATTACKS[name](url)
        post_forever(f"review/sets/study/{path}", lambda _: json.dumps(body).encode())(
            url, address, stop
        )

    return attack


SEALED = json.dumps({"sealed": "A" * 10_000_000}).encode()
LINES = json.dumps({"arguments": [["Say it."]], "resps": [["word " * 50_000]]})
SAMPLES = json.dumps(
    {"samples": [{"name": name, "text": LINES} for name in "ab"], "name": "large"}
).encode()
KINDS: dict[str, Attack] = {
    "readers that never read": never_reading,
    "unfinished bodies": unfinished,
    "figures": heavy("figures"),
    "merge": heavy("merge"),
    "export": heavy("csv"),
    "forged archives": post_forever("review/sets", lambda _: SEALED),
    "sets of samples": post_forever("review/sets", lambda _: SAMPLES),
    "wrong keys": post_forever(
        "review/sets/study/judgements", lambda _: b'{"row": {}}', **{"x-review-key": "a wrong key"}
    ),
    "connections": connecting,
    "pages": get_forever(""),
    "configurations": get_forever("config"),
    "files": get_forever(file_address("plotly.js")),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Process and address of a page."""
    data = tmp_path_factory.mktemp("data")
    process = subprocess.Popen(
        [sys.executable, "-c", PAGE, str(data)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MARS_REVIEW_KEY": KEY},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = next(line for line in process.stdout if "MARS live" in line).split()[-1]
        yield process.pid, url
    finally:
        process.terminate()
        process.wait(60)


def resident(process: int) -> int:
    """Bytes of memory of a process."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def under(url: str, attack: Attack) -> None:
    """Attack from several addresses, and use the server from another one meanwhile."""
    stop = Stop()
    attackers = [
        threading.Thread(target=attack, args=(url, address, stop), daemon=True)
        for address in ATTACKERS
    ]
    for each in attackers:
        each.start()
    try:
        until = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < until:
            assert_served(url)
            time.sleep(0.5)
    finally:
        stop.set()
        for each in attackers:
            each.join(120)
    assert not any(each.is_alive() for each in attackers)


@pytest.mark.parametrize("name", KINDS)
def test_another_address_is_served_and_memory_comes_back(
    server: tuple[int, str], name: str
) -> None:
    process, url = server
    under(url, KINDS[name])  # what is cached at first use is there
    before = resident(process)
    under(url, KINDS[name])
    assert_served(url)
    until = time.monotonic() + CALM_SECONDS
    while (grown := resident(process) - before) > MEMORY and time.monotonic() < until:
        time.sleep(1.0)
    assert grown <= MEMORY
