"""What a page of another site can make a visitor's browser do with a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mars_runtime.serving.addresses import OTHER_HOST
from tests.app.scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from tests.serving.scripted_server import Oracle, serving

PATHS = {
    "page": ("/", "/config", "/review/sets", "/v1/models", "/files/x/0123456789abcdef", "/nothing"),
    "endpoint": ("/health", "/v1/models", "/docs", "/nothing"),
}
Place = tuple[str, int]


@pytest.fixture(params=PATHS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Place]]:
    if request.param == "endpoint":
        with serving(tmp_path, Oracle()) as found:
            yield "endpoint", place_of(found.address)
        return
    with page_served(make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)) as url:
        yield "page", place_of(url)


def place_of(url: str) -> Place:
    at = urlsplit(url)
    return str(at.hostname), int(at.port or 0)


def answer(place: Place, path: str, host: str) -> bytes:
    """The whole answer to a request that names a host."""
    parts = []
    with socket.create_connection(place, 30) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_a_name_that_was_made_to_resolve_to_this_machine_is_refused(
    place: tuple[str, Place],
) -> None:
    kind, at = place
    for path in PATHS[kind]:
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example."):
            refused = answer(at, path, f"{name}:{at[1]}")
            assert refused.startswith(b"HTTP/1.1 403 "), path
            assert OTHER_HOST.encode() in refused


def test_this_machine_and_its_proxies_are_served(place: tuple[str, Place]) -> None:
    kind, at = place
    path = PATHS[kind][0]
    own = [f"{name}:{at[1]}" for name in ("127.0.0.1", "localhost", "[::1]", "mars.localhost")]
    for host in (*own, "demo.example", "demo.example:8443"):
        assert answer(at, path, host).startswith(b"HTTP/1.1 200 "), host


def test_behind_a_trusted_proxy_any_name_is_served(tmp_path: Path) -> None:
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0, num_proxies=1)
    with page_served(handlers) as url:
        at = place_of(url)
        assert answer(at, "/", f"demo.example:{at[1]}").startswith(b"HTTP/1.1 200 ")


def test_no_browser_guesses_a_type_or_tells_another_site_an_address(
    place: tuple[str, Place],
) -> None:
    kind, at = place
    for path in PATHS[kind]:
        head = answer(at, path, "localhost").partition(b"\r\n\r\n")[0].lower()
        assert b"\r\nx-content-type-options: nosniff" in head, path
        assert b"\r\nreferrer-policy: same-origin" in head, path
