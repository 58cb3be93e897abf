"""Routes of gradio that this app has no use for are shut, and no value becomes a file."""

from __future__ import annotations

import gc
import http.client
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from scripted_page import ScriptedBackend, controls, make_handlers
from visitor import Visitor, assert_serves

from app.serving.routes import LONG_SESSION, NO_FILES, NO_TEXT, fault_of, parsed
from app.ui.checkpoints import MAX_SETTLED
from app.ui.controls import STEERED
from app.ui.files import FILES, file_address
from mars_runtime.machine import return_freed_memory


class Bait(BaseHTTPRequestHandler):
    """Another server, which nobody has a reason to ask for anything."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 1000)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def bait() -> Iterator[str]:
    Bait.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), Bait)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/secret"
    server.shutdown()
    server.server_close()


def ask(
    address: str, method: str, path: str, body: bytes = b"", kind: str = "application/json"
) -> tuple[int, str]:
    """Status and text, with the path as it is: nothing is tidied up on the way."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request(method, path, body or None, {"content-type": kind})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode("utf-8", "replace")
    connection.close()
    return found


SHUT = [
    ("GET", "/gradio_api/file=https://example.org/"),
    ("HEAD", "/gradio_api/file=https://example.org/"),
    ("GET", "/gradio_api/file=/etc/passwd"),
    ("GET", "/gradio_api/file=app.py"),
    ("GET", "/gradio_api/file/app.py"),
    ("GET", "/gradio_api/proxy=https://example.org/"),
    ("GET", "/gradio_api/%70roxy=https://example.org/"),
    ("POST", "/gradio_api/upload"),
    ("POST", "/gradio_api/upload?upload_id=1"),
    ("GET", "/gradio_api/upload_progress?upload_id=1"),
    ("POST", "/gradio_api/process_recording"),
    ("GET", "/gradio_api/deep_link?session_hash=1"),
    ("GET", "/gradio_api/deep_link"),
    ("POST", "/gradio_api/stream/1"),
    ("GET", "/gradio_api/stream/1/2/3/playlist.m3u8"),
    ("GET", "/gradio_api/custom_component/a/b/c/d"),
    ("POST", "/gradio_api/vibe-edit/"),
    ("GET", "/gradio_api/vibe-code/"),
    ("GET", "/monitoring"),
    ("GET", "/monitoring/summary"),
    ("GET", "/gradio_api/runs"),
    ("GET", "/gradio_api/startup-events"),
    ("POST", "/gradio_api/run-history/connect"),
    ("POST", "/login"),
    ("GET", "/gradio_api/dev/reload"),
    ("POST", "/gradio_api/api/generate"),
    ("PUT", "/"),
    ("POST", "/"),
    ("DELETE", "/config"),
]


@pytest.mark.parametrize(("method", "path"), SHUT)
def test_a_route_that_the_app_does_not_use_is_shut(address: str, method: str, path: str) -> None:
    status, text = ask(address, method, path, b"{}" if method == "POST" else b"")
    assert status == 404
    assert method == "HEAD" or json.loads(text) == {"detail": "Nothing is served here."}


def test_what_the_page_uses_is_open(address: str) -> None:
    _, page = ask(address, "GET", "/")
    assert "MARS live" in page
    for path in ("/config", "/theme.css", "/gradio_api/info", "/gradio_api/app_id"):
        assert ask(address, "GET", path)[0] == 200
    for name in FILES:
        assert f'"{file_address(name)}' in page  # relative to the page
        assert ask(address, "GET", f"/{file_address(name)}")[0] == 200


def test_the_document_travels_packed_and_a_stream_as_it_comes(address: str) -> None:
    page = httpx.get(address)
    assert page.headers["content-encoding"] == "gzip"
    assert page.num_bytes_downloaded < len(page.content) / 4
    with httpx.stream("GET", f"{address}gradio_api/heartbeat/one") as beat:
        assert beat.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in beat.headers


def file_data(url: str) -> dict[str, Any]:
    return {"path": url, "url": url, "meta": {"_type": "gradio.FileData"}}


def test_no_text_field_makes_the_server_fetch(address: str, bait: str) -> None:
    visitor = Visitor(address)
    value = file_data(bait)
    for changes in ({"prompt": value}, {"prompt": [{"deep": value}]}, {"checkpoint": value}):
        status, text = visitor.run(**changes)
        assert (status, "file" in text) == (400, True)
    posts = {
        "/gradio_api/run/predict": {"data": [value], "fn_index": 0, "session_hash": "a"},
        "/gradio_api/call/generate": {"data": [value]},
        "/gradio_api/call/batch": {"data": [[value]]},
        "/gradio_api/call/v2/generate": {"prompt": value},
    }
    for path, body in posts.items():
        assert ask(address, "POST", path, json.dumps(body).encode())[0] == 400
    escaped = json.dumps(posts["/gradio_api/call/generate"]).replace("path", "\\u0070ath")
    assert ask(address, "POST", "/gradio_api/call/generate", escaped.encode())[0] == 400
    assert ask(address, "GET", f"/gradio_api/file={bait}")[0] == 404
    assert ask(address, "GET", f"/gradio_api/proxy={bait}")[0] == 404
    assert Bait.asked == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "", "application/jsonx"]
)
def test_no_form_of_another_site_is_taken(address: str, kind: str) -> None:
    values = controls()
    body = json.dumps({"data": list(values.values()), "fn_index": 0, "session_hash": "a"})
    for path in ("/gradio_api/queue/join", "/gradio_api/component_server", "/gradio_api/cancel"):
        assert ask(address, "POST", path, body.encode(), kind)[0] == 415
    assert_serves(Visitor(address))


@pytest.mark.parametrize("origin", ["http://localhost:9999", "http://127.0.0.1:1", "https://x.org"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
@pytest.mark.parametrize("path", ["/config", "/v1/models"])
def test_no_page_of_another_origin_reads_an_answer(
    address: str, origin: str, method: str, path: str
) -> None:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request(method, path, None, headers)
    granted = [name.lower() for name, _ in connection.getresponse().getheaders()]
    connection.close()
    assert not any(name.startswith("access-control") for name in granted)


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_what_describes_the_endpoint_is_let_through(address: str, path: str) -> None:
    status, text = ask(address, "GET", path)
    assert status == 200
    assert "/v1/chat/completions" in text


def test_a_refused_knob_is_no_fault_of_the_server(address: str) -> None:
    visitor = Visitor(address)
    status, text = visitor.knobs(pace=10**400)
    assert status == 400
    assert "Slow motion" in json.loads(text)["error"]
    assert visitor.knobs()[0] == 200


@pytest.mark.parametrize(
    ("body", "is_file"),
    [
        (b'{"data": ["path", "url", {"a": 1}]}', False),
        (b'{"data": [[{"x": {"path": ""}}]]}', True),
        (b'{"data": [{"url": "http://x"}]}', True),
        (b'{"path": 1, "path": 2}', True),
        (b"[" * 5000, False),
        (b"\xff\xfe{", False),
        ('{"data": [{"path": "a"}]}'.encode("utf-16"), True),
    ],
)
def test_what_gradio_would_take_for_a_file_is_found(body: bytes, is_file: bool) -> None:
    assert fault_of(parsed(body)) == (NO_FILES if is_file else "")


HALF = "\ud800"


@pytest.mark.parametrize("field", controls())
def test_half_a_character_is_refused_wherever_it_comes(address: str, field: str) -> None:
    visitor = Visitor(address)
    assert visitor.run(**{field: HALF}) == (400, json.dumps({"detail": NO_TEXT}))
    if field in STEERED:
        assert visitor.knobs(**{field: HALF}) == (400, json.dumps({"detail": NO_TEXT}))


def test_half_a_character_past_the_controls_does_no_harm(address: str) -> None:
    visitor = Visitor(address)
    config = json.loads(ask(address, "GET", "/config")[1])
    called = [
        {"component_id": part["id"], "fn_name": name, "data": HALF, "session_hash": "a"}
        for part in config["components"]
        for name in part["props"].get("server_fns") or []
    ]
    assert {call["fn_name"] for call in called} == {
        "missed",
        "judge",
        "told",
        "layers",
        "shared",
        "keep",
    }
    for call in called:
        status, _ = ask(address, "POST", "/gradio_api/component_server", json.dumps(call).encode())
        assert status == 200
    for event in filter(lambda event: event["inputs"], config["dependencies"]):
        data = [HALF] * len(event["inputs"])
        body = {"data": data, "fn_index": event["id"], "session_hash": visitor.session}
        for path in ("run/predict", "queue/join"):
            assert ask(address, "POST", f"/gradio_api/{path}", json.dumps(body).encode())[0] < 500
    body = {"data": [], "fn_index": 0, "session_hash": HALF}
    for path in ("run/predict", "queue/join", "cancel"):
        assert ask(address, "POST", f"/gradio_api/{path}", json.dumps(body).encode())[0] < 500
    assert_serves(Visitor(address))


LONG = "x" * 65


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/run/predict"),
        ("POST", "/gradio_api/queue/join"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/cancel"),
        ("POST", "/gradio_api/reset"),
        ("GET", f"/gradio_api/queue/data?session_hash={LONG}"),
        ("GET", f"/config?session_hash={LONG}"),
    ],
)
def test_a_session_with_a_long_name_is_refused_at_every_door(
    address: str, method: str, path: str
) -> None:
    """What is kept of visitors is kept by this name."""
    told = json.dumps({"fn_index": 0, "session_hash": LONG, "data": []}).encode()
    status, text = ask(address, method, path, told if method == "POST" else b"")
    assert (status, json.loads(text)) == (400, {"detail": LONG_SESSION})


def test_a_heartbeat_of_a_long_name_is_refused(address: str) -> None:
    assert ask(address, "GET", f"/gradio_api/heartbeat/{LONG}")[0] == 404


def test_sessions_that_settled_are_forgotten_after_many_others(tmp_path: Path) -> None:
    handlers = make_handlers(tmp_path, ScriptedBackend("I write."))
    found = handlers.checkpoints
    for number in range(3 * MAX_SETTLED):
        found.settle(str(number))
        found.settle("me")
    assert len(found._settled) == MAX_SETTLED
    assert "me" in found._settled
    handlers.engines.close()


NUM_LONG, LENGTH = 2000, 220_000


def test_memory_stays_flat_after_many_posts_with_long_names(
    address: str, is_full_attack: bool
) -> None:
    """The page's server is this process, so is its memory."""
    config = json.loads(ask(address, "GET", "/config")[1])
    settles = [one["id"] for one in config["dependencies"] if "settle" in one["api_name"]]
    events = settles or [one["id"] for one in config["dependencies"]]
    count = NUM_LONG if is_full_attack else 60
    before = None
    for number in range(count):
        name = f"{number:08d}" + "y" * LENGTH
        told = {"fn_index": events[number % len(events)], "session_hash": name, "data": []}
        assert ask(address, "POST", "/gradio_api/run/predict", json.dumps(told).encode())[0] == 400
        if number == count // 10:
            gc.collect()
            before = resident()
    gc.collect()
    assert before is not None
    assert resident() - before < 5_000_000


def resident() -> int:
    """Bytes of this process in memory."""
    return_freed_memory()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
