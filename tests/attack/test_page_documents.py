"""The page's document and configuration, asked for by many at once."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from gradio import routes

from app.serving.documents import MARKER, NO_HOST
from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

PATHS = ("/", "/config", "/config/")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with page_served(make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)) as found:
        yield found


def test_neither_is_rendered_for_each_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    render = routes.route_utils.update_root_in_config

    def count(config: object, root: str) -> object:
        rendered.append(root)
        return render(config, root)  # type: ignore[arg-type]

    monkeypatch.setattr(routes.route_utils, "update_root_in_config", count)

    def ask(number: int) -> httpx.Response:
        path, host = PATHS[number % 3], f"host{number}.example"
        return httpx.get(f"{url[:-1]}{path}?x={number}", headers={"host": host}, timeout=60)

    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(ask, range(48)))
    assert {answer.status_code for answer in answers} == {200}
    for number, answer in enumerate(answers):
        assert f"http://host{number}.example" in answer.text
        assert MARKER not in answer.text
        assert set(re.findall(r"host(\d+)\.example", answer.text)) == {str(number)}
    assert len(rendered) <= 2


def test_the_configuration_names_the_address_that_was_asked(url: str) -> None:
    headers = {"x-forwarded-host": "demo.example", "x-forwarded-proto": "https"}
    for encoding in ("gzip", "identity"):
        with httpx.Client(base_url=url, headers={"accept-encoding": encoding}) as client:
            assert client.get("config").json()["root"] == url[:-1]
            assert client.get("config", headers=headers).json()["root"] == "https://demo.example"
            assert client.get("").headers["content-type"] == "text/html; charset=utf-8"
            head = client.head("")
            assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("host", ['x"y', "x<y>", "x\\y", "x'y", "x y", "[::"])
def test_a_host_that_is_none_is_refused(url: str, host: str) -> None:
    for name in ("host", "x-forwarded-host"):
        answer = httpx.get(url, headers={name: host})
        if answer.status_code == 200:
            assert host not in answer.text
            assert json.dumps(host)[1:-1] not in answer.text
        else:
            assert (answer.status_code, answer.json()["detail"]) == (400, NO_HOST)


def test_assets_are_packed_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path, *_) = re.findall(r'src="\./(assets/[^"]+[.]js)"', httpx.get(url).text)
    plain = httpx.get(url + path, headers={"accept-encoding": "identity"})
    packed: list[int] = []
    pack = zlib.compressobj

    def count(*args: int) -> object:
        packed.append(1)
        return pack(*args)

    monkeypatch.setattr("zlib.compressobj", count)
    answers = [httpx.get(url + path) for _ in range(4)]
    assert len(packed) <= 1
    for answer in answers:
        assert answer.content == plain.content
        assert answer.headers["content-encoding"] == "gzip"
        for name in ("content-type", "etag"):
            assert answer.headers[name] == plain.headers[name]
    known = httpx.get(url + path, headers={"if-none-match": plain.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert httpx.get(f"{url}assets/nothing.js").status_code == 404
