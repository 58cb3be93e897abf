"""Proxy and certificate variables that are set when the program starts."""

from __future__ import annotations

import importlib.util
import os
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from mars_runtime.model.fetch import OFFLINE, hub_answers
from mars_runtime.network import CERTIFICATES, EXEMPT, PROXIES, repair_network


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any of the variables; what a test or the repair sets is undone."""
    for name in (*CERTIFICATES, *PROXIES, *EXEMPT, "MARS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


class Answering(HTTPServer):
    """A server that answers anything, asked directly or as a proxy; ``asked``: the paths."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Answering

    def answer(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    do_HEAD = do_GET = answer  # noqa: N815

    def log_message(self, *words: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_an_environment_without_them_stays_as_it_is() -> None:
    before = dict(os.environ)
    assert repair_network("10.0.0.1") == []
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/nonexistent/ca.pem"),
        ("SSL_CERT_FILE", "/etc/hostname"),
        ("all_proxy", "socks4://127.0.0.1:9"),
        ("HTTPS_PROXY", "ftp://127.0.0.1:9"),
        ("http_proxy", "http://127.0.0.1:port"),
        ("no_proxy", "[::1]"),
        ("NO_PROXY", "::1/128"),
    ],
)
def test_what_no_client_can_use_is_dropped_with_a_sentence(
    variables: pytest.MonkeyPatch, name: str, value: str
) -> None:
    variables.setenv(name, value)
    with pytest.raises((OSError, ValueError, httpx.InvalidURL)):
        httpx.Client()
    (sentence,) = repair_network()
    assert sentence.startswith(f"{name} is ignored")
    assert sentence.endswith(".")
    assert name not in os.environ
    httpx.Client().close()


def test_a_socks_proxy_is_dropped_where_none_can_be_used(variables: pytest.MonkeyPatch) -> None:
    """As system-wide settings have it next to HTTP proxies, which stay."""
    if importlib.util.find_spec("socksio"):
        pytest.skip("SOCKS proxies can be used here")
    variables.setenv("all_proxy", "socks5://user:secret@127.0.0.1:9")
    variables.setenv("https_proxy", "http://127.0.0.1:9")
    (sentence,) = repair_network()
    assert "all_proxy" in sentence
    assert "httpx[socks]" in sentence
    assert "secret" not in sentence
    assert os.environ["https_proxy"] == "http://127.0.0.1:9"


def test_valid_exemptions_next_to_a_wrong_one_are_kept(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("http_proxy", "http://127.0.0.1:9")
    variables.setenv("no_proxy", "intranet.example, [::1] ,127.0.0.0/8")
    (sentence,) = repair_network()
    assert "[::1]" in sentence
    assert os.environ["no_proxy"].split(",")[:2] == ["intranet.example", "127.0.0.0/8"]
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"]


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize("exempt", ["", "intranet.example"])
def test_the_server_of_this_machine_is_asked_without_a_proxy(
    variables: pytest.MonkeyPatch, server: Answering, name: str, exempt: str
) -> None:
    variables.setenv(name, "http://127.0.0.1:9")
    variables.setenv("no_proxy", exempt)
    assert repair_network() == []
    assert httpx.get(f"{server.address}/own").status_code == 200
    assert server.asked == ["/own"]


def test_the_address_that_is_served_at_is_asked_without_a_proxy_and_the_hub_through_it(
    variables: pytest.MonkeyPatch, server: Answering
) -> None:
    variables.setenv("http_proxy", server.address)
    variables.setenv("HF_ENDPOINT", "http://hub.invalid")
    for name in OFFLINE:
        variables.delenv(name, raising=False)
    urllib.request.install_opener(None)  # one that was made before keeps its proxies
    repair_network("page.invalid")
    with pytest.raises(httpx.ConnectError):
        httpx.get("http://page.invalid/")
    assert server.asked == []
    assert hub_answers(10)
    httpx.get("http://hub.invalid/file")
    assert server.asked == ["http://hub.invalid", "http://hub.invalid/file"]
