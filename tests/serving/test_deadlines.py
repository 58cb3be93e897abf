"""Requests that never become whole, sent by hand to a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from mars_runtime.serving import deadlines
from mars_runtime.serving.deadlines import DeadlineProtocol
from mars_runtime.serving.limits import CrowdLimit, whole_body

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers slowly, with the length of what it was sent."""
    if scope["type"] != "http":
        return
    body = await whole_body(receive)
    if body is None:
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(8):
        await send({"type": "http.response.body", "body": b"%d " % len(body), "more_body": True})
        await deadlines.asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": b"end"})


async def refusal(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 429, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Where headers have 0.4 s, and bodies one more for each kilobyte."""
    monkeypatch.setattr(deadlines, "SECONDS", 0.4)
    monkeypatch.setattr(deadlines, "BYTES_PER_SECOND", 1000)
    listening = socket.create_server(("127.0.0.1", 0))
    crowd = CrowdLimit(app, 2, refusal)
    server = uvicorn.Server(uvicorn.Config(crowd, http=DeadlineProtocol, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join(20)


def ends_after(connection: socket.socket, bytes_now: bytes, drip: bytes = b"") -> float:
    """Seconds until the server ends a connection on which a byte follows now and then."""
    began = time.monotonic()
    connection.sendall(bytes_now)
    connection.settimeout(0.1)
    while time.monotonic() - began < 10:
        try:
            if connection.recv(100) == b"":
                break
        except TimeoutError:
            pass
        except OSError:
            break
        try:
            connection.sendall(drip)
        except OSError:
            break
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("first", "drip", "least", "most"),
    [
        (b"", b"", 0.3, 3.0),
        (b"GET / HTTP/1.1\r\nX: ", b"a", 0.3, 3.0),
        (HEAD % 100, b"a", 0.4, 3.0),
        (HEAD % 2000, b"a", 2.0, 6.0),
    ],
    ids=["nothing", "headers that trickle", "a short body", "a longer body has more time"],
)
def test_what_is_not_whole_in_time_is_ended(
    address: tuple[str, int], first: bytes, drip: bytes, least: float, most: float
) -> None:
    with socket.create_connection(address) as connection:
        assert least < ends_after(connection, first, drip) < most


def test_an_answer_takes_as_long_as_it_takes_and_another_request_may_follow(
    address: tuple[str, int],
) -> None:
    with socket.create_connection(address) as connection:
        connection.settimeout(5)
        for _ in range(2):
            connection.sendall(HEAD % 3 + b"abc")
            told = b""
            while not told.endswith(b"0\r\n\r\n"):
                told += connection.recv(1000)
            assert told.count(b"\r\n3 \r\n") == 8
            assert b"end" in told
        connection.sendall(b"POST / HTTP/1.1\r\nX:")
        assert ends_after(connection, b"", b"a") < 3.0


def test_who_never_finishes_keeps_no_neighbour_out(address: tuple[str, int]) -> None:
    held = [socket.create_connection(address) for _ in range(8)]
    for one in held:
        one.sendall(HEAD % 5000 + b"a")
    with socket.create_connection(address) as connection:
        connection.settimeout(5)
        connection.sendall(HEAD % 1 + b"a")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    for one in held:
        one.close()


def test_forty_that_trickle_are_all_ended(address: tuple[str, int]) -> None:
    held = [socket.create_connection(address) for _ in range(40)]
    began, left = time.monotonic(), list(held)
    for number, one in enumerate(held):
        one.sendall(b"GET / HTTP/1.1\r\nX: " if number % 2 else HEAD % 100)
        one.setblocking(False)
    while left and time.monotonic() - began < 10:
        time.sleep(0.05)
        for one in list(left):
            try:
                one.send(b"a")
                if one.recv(100) == b"":
                    left.remove(one)
            except BlockingIOError:
                continue
            except OSError:
                left.remove(one)
    assert not left
    for one in held:
        one.close()
