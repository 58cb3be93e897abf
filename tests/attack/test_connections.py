"""Clients that do not read, requests that never end, too many connections, and names of hosts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio import routes
from starlette.types import Message

from app.serving.documents import MARKER
from app.ui.files import file_address
from mars_runtime.serving import limits, server
from mars_runtime.serving.choices import SHUTTING_DOWN
from mars_runtime.serving.errors import ApiError
from tests.app.scripted_page import TEXT, ScriptedBackend, eventually, make_handlers, page_served
from tests.attack.attacked import ROOT, Place, connection, place_of, resident

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
ASKED = {
    "model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "method": "ar",
    "max_tokens": 40, "stream": True,
}  # fmt: skip


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
    clients = [stack.enter_context(connection(place, address)) for _ in range(number)]
    for client in clients:
        assert b" 200 " in ask(client)
    return clients


def answer(place: Place, address: str = "127.0.0.1") -> bytes:
    with connection(place, address) as client:
        return ask(client)


def test_an_address_has_few_connections(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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
    return 0.06


def lifetime(place: Place, kind: str) -> tuple[float, bytes]:
    """Return how long the server keeps a connection on which little comes, and what it answers."""
    began, heard = time.monotonic(), b""
    with connection(place) as client:
        client.settimeout(0.2)
        client.sendall(KINDS[kind])
        while time.monotonic() - began < 30:
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


def streamed(place: Place) -> tuple[float, str]:
    began, url = time.monotonic(), "http://{}:{}/v1/chat/completions".format(*place)
    with httpx.stream("POST", url, json=ASKED, timeout=60) as stream:
        *_, last = [line for line in stream.iter_lines() if line]
    return time.monotonic() - began, last


def test_a_request_has_a_time_limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 2.0)
    monkeypatch.setattr(limits, "BODY_SECONDS", 1.0)
    with ThreadPoolExecutor(len(KINDS) + 1) as pool:
        stream = pool.submit(streamed, place)
        lifetimes = dict(
            zip(KINDS, pool.map(lambda kind: lifetime(place, kind), KINDS), strict=True)
        )
    for kind, (took, heard) in lifetimes.items():
        assert 0.9 < took < 25, kind
        assert (b" 408 " in heard) == (kind not in ("silent", "head")), kind
    took, last = stream.result()
    assert took > 2.0
    assert last == "data: [DONE]"


class QuickLoop(asyncio.SelectorEventLoop):
    """Its clock jumps to the next timer."""

    now = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._wait, self._selector.select = self._selector.select, self._jump

    def time(self) -> float:
        return self.now

    def _jump(self, seconds: float | None = None) -> Any:
        self.now += seconds or 0.0
        return self._wait(0)


def status_of(parts: list[tuple[float, int]]) -> int:
    """Return what a body gets of which so many bytes come after so many seconds each."""
    left = list(parts)

    async def receive() -> Message:
        seconds, size = left.pop(0)
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": b" " * size, "more_body": bool(left)}

    async def app(*_: object) -> None:
        assert not left

    limit = limits.BodyLimit(app, 2 * 10**7)
    scope = {"type": "http", "path": "/", "headers": [(b"content-length", b"1")]}
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        try:
            runner.run(limit(scope, receive, None))  # type: ignore[arg-type]
        except ApiError as error:
            return error.status
    return 200


def test_a_body_has_a_second_more_for_each_50_kb_that_came() -> None:
    for first, second, latest in (((9.0, 1), 1, 10), ((0, 50_000), 1, 11), ((0, 10**7), 1, 180)):
        for late, wanted in ((-0.1, 200), (0.1, 408)):
            assert status_of([first, (latest - first[0] + late, second)]) == wanted


# When a page is terminated, streams of API clients end with an error message, however busy it is.

PAGE = """
import importlib.util, pathlib, sys, time
from tests.app.scripted_page import ReadyEngines, ScriptedBackend, make_served
from app.settings import AppSettings
from mars_runtime.model.registry import Entry
from mars_runtime.serving import choices

spec = importlib.util.spec_from_file_location("start", "app.py")
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
settings = AppSettings(checkpoint="scripted", port=0)
entry = Entry("scripted", 8, path="scripted", licence="Apache-2.0")
backend = ScriptedBackend("word " * 2000, forward_seconds=0.01)
served = make_served(pathlib.Path(sys.argv[1]), entry, backend, settings)
start.make_engines = lambda settings: ReadyEngines(settings, served)
start.read_settings = lambda arguments: settings
start.check_address = lambda settings: None
choices.POLL_SECONDS = 0.7  # a busy machine
start.main()
"""


def test_streams_end_with_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PAGE, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    body = {"model": "scripted", "prompt": "x", "stream": True, "max_tokens": 500, "method": "ar"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = next(line for line in process.stdout if "MARS live" in line).split()[-1]
            with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as stream:
                lines = stream.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)
                *_, event, end = [line for line in lines if line]
            assert SHUTTING_DOWN in event
            assert end == "data: [DONE]"
            assert process.wait(30) == 128 + signal.SIGTERM
        finally:
            process.kill()


# Host names that clients write: what another site can make a browser do, and the page's document.

PATHS = {
    "page": ("/", "/config", "/v1/models", "/files/x/0123456789abcdef", "/nothing"),
    "endpoint": ("/health", "/v1/models", "/docs", "/nothing"),
}


def whole_answer(place: Place, path: str, host: str) -> bytes:
    parts = []
    with connection(place) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_only_names_of_this_machine_and_its_proxies_are_served(kind: str, place: Place) -> None:
    """Not one that was made to resolve to it. No browser guesses a type or names the page to
    another site."""
    for path in PATHS[kind]:
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example."):
            refused = whole_answer(place, path, f"{name}:{place[1]}")
            assert refused.startswith(b"HTTP/1.1 400 "), path
        head = whole_answer(place, path, "localhost").partition(b"\r\n\r\n")[0].lower()
        assert b"\r\nx-content-type-options: nosniff" in head, path
        assert b"\r\nreferrer-policy: same-origin" in head, path
    names = ("127.0.0.1", "localhost", "[::1]", "mars.localhost")
    hosts = [f"{name}:{place[1]}" for name in names]
    for host in hosts:
        assert whole_answer(place, PATHS[kind][0], host).startswith(b"HTTP/1.1 200 "), host


def test_behind_a_trusted_proxy_any_name_is_served(tmp_path: Path) -> None:
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0, num_proxies=1)
    with page_served(handlers) as url:
        place = place_of(url)
        assert whole_answer(place, "/", f"demo.example:{place[1]}").startswith(b"HTTP/1.1 200 ")


def test_nothing_is_rendered_for_each_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    render = routes.route_utils.update_root_in_config

    def count(config: object, root: str) -> object:
        rendered.append(root)
        return render(config, root)  # type: ignore[arg-type]

    monkeypatch.setattr(routes.route_utils, "update_root_in_config", count)

    def get(number: int) -> httpx.Response:
        path, host = ("/", "/config", "/config/")[number % 3], f"host{number}.localhost"
        return httpx.get(f"{url[:-1]}{path}?x={number}", headers={"host": host}, timeout=60)

    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(get, range(48)))
    assert {answer.status_code for answer in answers} == {200}
    for number, actual in enumerate(answers):
        assert MARKER not in actual.text
        assert set(re.findall(r"http://host(\d+)\.localhost", actual.text)) == {str(number)}
    assert len(rendered) <= 2


def test_the_configuration_names_the_address_that_was_asked(url: str) -> None:
    headers = {"x-forwarded-host": "demo.example", "x-forwarded-proto": "https"}
    for encoding in ("gzip", "identity"):
        with httpx.Client(base_url=url, headers={"accept-encoding": encoding}) as client:
            assert client.get("config").json()["root"] == url[:-1]
            assert client.get("config", headers=headers).json()["root"] == "https://demo.example"
            head = client.head("")
            assert (head.status_code, head.content) == (200, b"")
    for host in ('x"y', "x<y>", "x\\y", "x'y", "x y", "[::"):
        for name in ("host", "x-forwarded-host"):
            assert host not in httpx.get(url, headers={name: host}).text
            assert json.dumps(host)[1:-1] not in httpx.get(url, headers={name: host}).text
