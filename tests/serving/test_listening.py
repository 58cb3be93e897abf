"""Addresses that an endpoint is served at: IPv4, IPv6, names of either."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from mars_runtime.serving.server import PlaceTakenError, bound, url_of

ROOT = Path(__file__).parents[2]
LOOPBACK = {"127.0.0.1", "::1"}


def reached(listener: socket.socket, host: str) -> bool:
    """Whether a connection to the socket's port comes about."""
    try:
        socket.create_connection((host, listener.getsockname()[1]), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "reaches"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("localhost", {"127.0.0.1"}),
        ("0.0.0.0", {"127.0.0.1"}),
        ("::1", {"::1"}),
        ("[::1]", {"::1"}),
        ("::", LOOPBACK if socket.has_dualstack_ipv6() else {"::1"}),
    ],
)
def test_it_is_reached_where_it_is_served(host: str, reaches: set[str]) -> None:
    with bound(host, 0) as listener:
        assert {each for each in LOOPBACK if reached(listener, each)} == reaches


def test_a_name_that_has_an_ipv6_address_only_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def resolved(host: str, *rest: Any, **more: Any) -> Any:
        return resolve("::1" if host == "six.invalid" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with bound("six.invalid", 0) as listener:
        assert reached(listener, "::1")


@pytest.mark.parametrize(
    "host", ["no.such.name.invalid", "256.1.1.1", "::g", "a..b", "\0", "http://x"]
)
def test_an_address_that_is_none_is_one_sentence(host: str) -> None:
    with pytest.raises(PlaceTakenError) as caught:
        bound(host, 8000)
    assert "choose another --port" in str(caught.value)


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_number_that_is_no_port_is_one_sentence(host: str, port: int) -> None:
    with pytest.raises(PlaceTakenError):
        bound(host, port)


def test_a_taken_port_of_ipv6_is_named_as_a_client_writes_it() -> None:
    with bound("::1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PlaceTakenError, match=rf"at \[::1\]:{port},"):
            bound("::1", port)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "[::1]", "::"])
def test_the_address_that_is_printed_can_be_opened(host: str) -> None:
    with bound(host, 0) as listener:
        url = httpx.URL(url_of(*listener.getsockname()[:2]))
        assert url.port is not None
        socket.create_connection((url.host, url.port), timeout=5).close()


def test_the_command_serves_at_an_ipv6_address(random_folder: Path) -> None:
    """And says where, as a client writes it; a proxy in the environment is no hindrance."""
    command = [
        *(sys.executable, "-m", "mars_runtime", "serve", "--host", "::1", "--port", "0"),
        *("--checkpoint", str(random_folder)),
    ]
    variables = {"http_proxy": "http://127.0.0.1:9", "SSL_CERT_FILE": "/nonexistent/ca.pem"}
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\[::1\]:\d+/v1$", process.stdout.readline().strip())
        assert found is not None
        asked = {"model": str(random_folder), "prompt": "Once", "max_tokens": 2}
        answer = httpx.post(f"{found[0]}/completions", json=asked, timeout=60, trust_env=False)
        assert answer.status_code == 200
    finally:
        process.kill()
        process.communicate()
