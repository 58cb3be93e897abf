"""Requests that never come to an end keep nobody out: they are ended, and answers are not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

pytest.importorskip("openai")

from mars_runtime.serving import server
from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers
from tests.serving.scripted_server import NAME, Oracle, serving

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
WHOLE = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
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
TRICKLE = {"chunked": b"1\r\nx\r\n"}
Place = tuple[str, int]


@pytest.fixture
def seconds(is_full_attack: bool, monkeypatch: pytest.MonkeyPatch) -> float:
    """That a request has, the real ones in full length."""
    if not is_full_attack:
        for name in ("HEAD_SECONDS", "BODY_SECONDS"):
            monkeypatch.setattr(server, name, 1.0)
        monkeypatch.setattr(server, "MAX_BODY_SECONDS", 3.0)
    else:
        monkeypatch.setattr(server, "MAX_BODY_SECONDS", 12.0)
    return server.HEAD_SECONDS


@pytest.fixture(params=["page", "endpoint"])
def place(request: pytest.FixtureRequest, tmp_path: Path, seconds: float) -> Iterator[Place]:
    """Host and port of either server; its answers take longer than a request may."""
    pause = 2 * seconds / 40
    if request.param == "endpoint":
        with serving(tmp_path, Oracle(forward_seconds=pause)) as found:
            at = urlsplit(found.address)
            yield str(at.hostname), int(at.port or 0)
        return
    from app.serving.serve import serve

    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT, pause), port=0)
    page = serve(handlers, is_blocking=False)
    at = urlsplit(page.local_url)
    yield str(at.hostname), int(at.port or 0)
    page.close()
    handlers.engines.close()


def lifetime(place: Place, kind: str, limit: float) -> tuple[float, bytes]:
    """How long the server bears a connection on which little comes, and what it said last."""
    began, heard = time.monotonic(), b""
    with socket.create_connection(place) as connection:
        connection.settimeout(0.2)
        connection.sendall(KINDS[kind])
        while time.monotonic() - began < limit:
            try:
                heard += (new := connection.recv(65536))
                if not new:
                    break
            except TimeoutError:
                if kind != "silent":
                    connection.send(TRICKLE.get(kind, b" "))
            except OSError:
                break
    return time.monotonic() - began, heard


def test_forty_trickling_connections_are_ended(place: Place, seconds: float) -> None:
    """Within half as long again as they may take, and meanwhile the address is served."""
    limit = max(4.5, 1.5 * seconds)
    ended: list[tuple[str, float, bytes]] = []

    def trickle(kind: str) -> None:
        ended.append((kind, *lifetime(place, kind, 3 * limit)))

    kinds = [kind for kind in KINDS for _ in range(5)]
    assert len(kinds) == 40
    clients = [threading.Thread(target=trickle, args=[kind]) for kind in kinds]
    for client in clients:
        client.start()
    time.sleep(seconds / 2)
    asked = {"model": NAME, "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}
    answer = httpx.post("http://{}:{}/v1/chat/completions".format(*place), json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    for client in clients:
        client.join(60)
    assert len(ended) == 40
    for kind, took, heard in ended:
        assert took < limit, kind
        assert took > seconds - 0.1, kind
        is_refused_at_once = kind == "page" and b" 404 " in heard
        assert (b" 408 " in heard) == (kind != "silent" and not is_refused_at_once), (kind, heard)


def test_a_stream_may_take_longer_than_a_request(place: Place, seconds: float) -> None:
    asked = {"model": NAME, "max_tokens": 40, "stream": True, "method": "ar"}
    asked["messages"] = [{"role": "user", "content": "Hi"}]
    began = time.monotonic()
    url = "http://{}:{}/v1/chat/completions".format(*place)
    with httpx.stream("POST", url, json=asked, timeout=60) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert time.monotonic() - began > seconds


def test_a_body_has_a_second_more_for_each_50_kb(place: Place, seconds: float) -> None:
    """A slow line that keeps to that is served, and so is what comes after it."""
    size = 100_000
    late = seconds + 0.6 * size / server.BODY_RATE
    body = b'{"model": "' + b"x" * (size - 13) + b'"}'
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(place))
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % size)
        connection.sendall(body[: size // 2])
        time.sleep(late)
        connection.sendall(body[size // 2 :])
        connection.settimeout(30)
        assert connection.recv(65536).split()[1] == b"400"


@pytest.mark.parametrize(
    ("declared", "wanted"), [(b"0", 10.0), (b"100000", 12.0), (b"9" * 20, 180.0)]
)
def test_how_long_a_body_may_take(declared: bytes, wanted: float) -> None:
    assert server.body_seconds({b"content-length": declared}) == wanted
    assert server.body_seconds({}) == 10.0
