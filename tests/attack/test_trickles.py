"""Many clients, bodies and headers that never end, and what visitors can make the server load."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from app.engines.engines import Engines, UnavailableError, check_memory, num_weights, read_entries
from app.settings import AppSettings, AppSettingsError
from mars_runtime.machine import free_memory
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry, registry
from mars_runtime.serving import server
from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from tests.serving.scripted_server import NAME, Oracle, serving
from tools.clients import attack

pytest.importorskip("openai")


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
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT, pause), port=0)
    with page_served(handlers) as url:
        at = urlsplit(url)
        yield str(at.hostname), int(at.port or 0)


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
    late = seconds + 0.5 * (size / 2) / server.BODY_RATE
    body = b'{"model": "' + b"x" * (size - 13) + b'"}'
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(place))
        connection.sendall(HEAD + b"content-length: %d\r\n\r\n" % size)
        connection.sendall(body[: size // 2])
        time.sleep(late)
        connection.sendall(body[size // 2 :])
        connection.settimeout(30)
        assert connection.recv(65536).split()[1] == b"400"


@pytest.mark.parametrize(("num_received", "wanted"), [(0, 10.0), (100_000, 12.0), (10**20, 180.0)])
def test_how_long_a_body_may_take(num_received: int, wanted: float) -> None:
    assert server.body_seconds(num_received) == wanted


def test_a_declared_length_gives_no_time(place: Place, seconds: float) -> None:
    """A body that is declared large and stops coming ends like a small one."""
    began = time.monotonic()
    with socket.create_connection(place) as connection:
        connection.sendall(HEAD + b"content-length: 200000\r\n\r\n" + b" " * 1000)
        connection.settimeout(30)
        assert connection.recv(65536).split()[1] == b"408"
    assert time.monotonic() - began < seconds + 2.5


pytest.importorskip("httpx")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_fifty_clients_for_a_minute() -> None:
    found = attack("mars-tiny", 50, 60.0, seed=1)
    assert found["faults"] == []
    assert {"whole", "stream", "left", "nonsense"} <= found["outcomes"].keys()
    assert found["neighbour"]["num_answers"] > 0


def test_by_default_nothing_of_the_hub_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = read_entries("mars-tiny")
    assert next(iter(entries)) == "mars-tiny"
    assert "ar-tiny" in entries
    assert all(entry.hub is None for entry in entries.values())
    monkeypatch.setattr(Engines, "_load", lambda engines, name: pytest.fail(f"{name} was loaded"))
    engines = Engines(AppSettings(checkpoint="mars-tiny"))
    for name in ("mars-7b-blk4", "../../etc", "Xalphinions/MARS-Qwen2.5-7B-blk4"):
        with pytest.raises(UnavailableError, match="from the list"):
            engines.get(name, 0.0)


def test_the_operator_lists_more() -> None:
    assert list(read_entries("mars-tiny", "mars-7b-blk4, ar-tiny")) == [
        "mars-tiny",
        "ar-tiny",
        "mars-7b-blk4",
    ]
    assert read_entries("ar-tiny", "all").keys() == registry().keys()
    assert list(read_entries("mars-7b-blk4", "ar-tiny")) == ["mars-7b-blk4", "ar-tiny"]
    with pytest.raises(AppSettingsError, match="no checkpoint nobody to offer"):
        read_entries("mars-tiny", "ar-tiny,nobody")


def test_a_branch_that_may_change_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = {
        "pinned": Entry("pinned", 4, hub="a/b", revision="0" * 40),
        "loose": Entry("loose", 4, hub="a/c"),
        "bundled": Entry("bundled", 4, path="bundled"),
    }
    monkeypatch.setattr("app.engines.engines.registry", lambda: dict(known))
    with caplog.at_level(logging.WARNING):
        read_entries("bundled", "all")
    (warning,) = caplog.messages
    assert "loose is whatever the branch main of a/c holds" in warning
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        read_entries("bundled")
    assert caplog.messages == []


def write_head(folder: Path, *shapes: list[int]) -> Path:
    """A checkpoint's head without its weights."""
    folder.mkdir()
    head = {str(n): {"dtype": "BF16", "shape": shape} for n, shape in enumerate(shapes)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return folder


def test_what_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_head(tmp_path / "seven", [3584, 152064], [7_000, 1_000_000])
    assert num_weights(folder) == 3584 * 152064 + 7_000_000_000
    monkeypatch.setattr("app.engines.engines.free_memory", lambda: 24_000_000_000)
    with pytest.raises(CheckpointError, match=r"seven needs some 39\.2 GB .* 24\.0 GB are free"):
        check_memory("seven", folder, "cpu", "fp32")
    check_memory("seven", folder, "cpu", "bf16")
    monkeypatch.setattr("mars_runtime.model.build.has_native", lambda: True)
    check_memory("seven", folder, "cpu", "auto")  # in int8
    monkeypatch.setattr("mars_runtime.model.build.has_native", lambda: False)
    with pytest.raises(CheckpointError, match=r"seven needs some 39\.2 GB"):
        check_memory("seven", folder, "cpu", "auto")
    monkeypatch.setattr("app.engines.engines.free_memory", lambda: None)
    check_memory("seven", folder, "cpu", "auto")


def test_engines_ask_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_head(tmp_path / "huge", [10**6, 10**7])
    (folder / "config.json").write_text("{}")
    engines = Engines(AppSettings(checkpoint=str(folder)))
    with pytest.raises(UnavailableError, match="of memory"):
        engines.get(str(folder), 60)


@pytest.mark.parametrize("head", [b"", b"\xff" * 8, b"\x02" + b"\x00" * 7 + b"[]", b"\x01" * 20])
def test_a_damaged_head_says_nothing(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(head)
    assert num_weights(tmp_path) == 0


def test_free_memory_is_told() -> None:
    free = free_memory()
    assert free is None or 0 < free < 2**50
