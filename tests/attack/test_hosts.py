"""Host names that clients write: what another site can make a browser do, and the page's document
and configuration, requested by many at once under names of their own."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from gradio import routes

from app.serving.documents import MARKER
from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from tests.attack.attacked import Place, connection, place_of

PATHS = {
    "page": ("/", "/config", "/v1/models", "/files/x/0123456789abcdef", "/nothing"),
    "endpoint": ("/health", "/v1/models", "/docs", "/nothing"),
}


def answer(place: Place, path: str, host: str) -> bytes:
    """Return the whole answer to a request that names a host."""
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
            refused = answer(place, path, f"{name}:{place[1]}")
            assert refused.startswith(b"HTTP/1.1 400 "), path
        head = answer(place, path, "localhost").partition(b"\r\n\r\n")[0].lower()
        assert b"\r\nx-content-type-options: nosniff" in head, path
        assert b"\r\nreferrer-policy: same-origin" in head, path
    names = ("127.0.0.1", "localhost", "[::1]", "mars.localhost")
    hosts = [f"{name}:{place[1]}" for name in names]
    for host in hosts:
        assert answer(place, PATHS[kind][0], host).startswith(b"HTTP/1.1 200 "), host


def test_behind_a_trusted_proxy_any_name_is_served(tmp_path: Path) -> None:
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0, num_proxies=1)
    with page_served(handlers) as url:
        place = place_of(url)
        assert answer(place, "/", f"demo.example:{place[1]}").startswith(b"HTTP/1.1 200 ")


def test_nothing_is_rendered_for_each_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    render = routes.route_utils.update_root_in_config

    def count(config: object, root: str) -> object:
        rendered.append(root)
        return render(config, root)  # type: ignore[arg-type]

    monkeypatch.setattr(routes.route_utils, "update_root_in_config", count)

    def ask(number: int) -> httpx.Response:
        path, host = ("/", "/config", "/config/")[number % 3], f"host{number}.localhost"
        return httpx.get(f"{url[:-1]}{path}?x={number}", headers={"host": host}, timeout=60)

    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(ask, range(48)))
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
