"""Routes that the app does not use are shut, and no value becomes a file."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from scripted_page import controls
from visitor import Visitor, assert_serves

from app.serving.routes import LONG_SESSION, NO_TEXT, NOTHING
from app.ui.files import FILES, file_address
from mars_runtime.files.json_values import json_line

API = "/gradio_api"
HALF, LONG = "\ud800", "x" * 65


@pytest.fixture
def bait() -> Iterator[tuple[str, socket.socket]]:
    """Another server that must receive no request: its address, and where it would."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/secret", listener


def ask(
    address: str, method: str, path: str, body: Any = b"", kind: str = "application/json"
) -> tuple[int, str]:
    """Status and text, with the path as it is: nothing is tidied up on the way."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)) as connection:
        connection.request(method, path, sent or None, {"content-type": kind})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")


GET = ["file=https://example.org/", "file=/etc/passwd", "file=app.py", "file/app.py",
       "proxy=https://example.org/", "%70roxy=https://example.org/", "upload_progress?upload_id=1",
       "deep_link?session_hash=1", "deep_link", "stream/1/2/3/playlist.m3u8",
       "custom_component/a/b/c/d", "vibe-code/", "runs", "startup-events",
       "dev/reload"]  # fmt: skip
POST = ["upload", "upload?upload_id=1", "process_recording", "stream/1", "vibe-edit/",
        "run-history/connect", "api/generate"]  # fmt: skip
SHUT = [
    *(("GET", f"{API}/{path}") for path in GET),
    *(("POST", f"{API}/{path}") for path in POST),
    ("HEAD", f"{API}/file=https://example.org/"),
    ("GET", "/monitoring"),
    ("GET", "/monitoring/summary"),
    ("POST", "/login"),
    ("PUT", "/"),
    ("POST", "/"),
    ("DELETE", "/config"),
]


def test_a_route_that_the_app_does_not_use_is_shut(address: str) -> None:
    for method, path in SHUT:
        status, text = ask(address, method, path, b"{}" if method == "POST" else b"")
        assert status == 404, path
        assert method == "HEAD" or json.loads(text) == {"detail": NOTHING}


def test_what_the_page_uses_is_open(address: str) -> None:
    """The document travels packed, a stream as it comes."""
    page = httpx.get(address)
    assert "MARS live" in page.text
    assert page.headers["content-encoding"] == "gzip"
    assert page.num_bytes_downloaded < len(page.content) / 4
    with httpx.stream("GET", f"{address}gradio_api/heartbeat/one") as beat:
        assert beat.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in beat.headers
    for path in ("/config", "/theme.css", f"{API}/info", f"{API}/app_id"):
        assert ask(address, "GET", path)[0] == 200
    texts = page.text + ask(address, "GET", f"/{file_address('page.js')}")[1]
    for name in FILES:
        assert f'"{file_address(name)}' in texts  # relative to the page
        assert ask(address, "GET", f"/{file_address(name)}")[0] == 200
    for path in ("/docs", "/openapi.json"):
        assert "/v1/chat/completions" in ask(address, "GET", path)[1]


def test_no_value_makes_the_server_fetch(address: str, bait: tuple[str, socket.socket]) -> None:
    url, listener = bait
    visitor = Visitor(address)
    value = {"path": url, "url": url, "meta": {"_type": "gradio.FileData"}}
    for changes in ({"prompt": value}, {"prompt": [{"deep": value}]}, {"checkpoint": value}):
        status, text = visitor.run(**changes)
        assert (status, "file" in text) == (400, True)
    predict, generate = f"{API}/run/predict", f"{API}/call/generate"
    for path, body in (
        (predict, {"data": [value], "fn_index": 0, "session_hash": "a"}),
        (generate, {"data": [value]}),
        (generate, json.dumps({"data": [value]}).replace("path", "\\u0070ath").encode()),
        (generate, json.dumps({"data": [value]}).encode("utf-16")),
        (generate, {"data": [[{"x": {"path": ""}}]]}),
        (generate, {"data": [{"url": url}]}),
        (generate, b'{"path": 1, "path": 2}'),
        (f"{API}/call/batch", {"data": [[value]]}),
        (f"{API}/call/v2/generate", {"prompt": value}),
    ):
        assert ask(address, "POST", path, body)[0] == 400, body
    assert visitor.run(prompt='{"path": "url"}')[0] == 200  # a text about files is none
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_no_form_of_another_site_is_taken_and_no_other_origin_reads(address: str) -> None:
    body = {"data": list(controls().values()), "fn_index": 0, "session_hash": "a"}
    for kind in ("text/plain", "multipart/form-data; boundary=x", "", "application/jsonx"):
        for path in ("queue/join", "component_server", "cancel"):
            assert ask(address, "POST", f"{API}/{path}", body, kind)[0] == 415
    for origin in ("http://localhost:9999", "http://127.0.0.1:1", "https://x.org"):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        for method, path in (("GET", "config"), ("OPTIONS", "config"), ("GET", "v1/models")):
            answer = httpx.request(method, address + path, headers=headers)
            assert not any(name.startswith("access-control") for name in answer.headers)


def test_the_queue_cannot_be_gone_round_and_a_refused_knob_is_no_fault(address: str) -> None:
    body = {"data": ["hello"], "session_hash": "a"}
    assert ask(address, "POST", f"{API}/run/generate", body)[0] in (401, 403, 404)
    visitor = Visitor(address)
    status, text = visitor.knobs(pace=10**400)
    assert status == 400
    assert json.loads(text)["error"].startswith("pace must")
    assert visitor.knobs()[0] == 200


def test_half_a_character_is_refused_wherever_it_comes(address: str) -> None:
    refused = (400, json_line({"detail": NO_TEXT}))
    visitor = Visitor(address)
    for field in ("prompt", "history"):
        assert visitor.run(**{field: HALF}) == refused, field
    assert visitor.knobs(tau=HALF) == refused
    assert_serves(visitor)


def test_a_session_with_a_long_name_is_refused(address: str) -> None:
    """What is kept of visitors is kept by this name."""
    refused = (400, json_line({"detail": LONG_SESSION}))
    body = {"fn_index": 0, "session_hash": LONG, "data": []}
    for path in ("run/predict", "queue/join", "component_server", "cancel", "reset"):
        assert ask(address, "POST", f"{API}/{path}", body) == refused, path
    for path in (f"{API}/queue/data", "/config"):
        assert ask(address, "GET", f"{path}?session_hash={LONG}") == refused, path
    assert ask(address, "GET", f"{API}/heartbeat/{LONG}")[0] == 404
