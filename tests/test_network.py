"""Proxy and certificate variables that are set when the program starts."""

from __future__ import annotations

import httpx
import pytest

from mars_runtime.system.network import prepare_network

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
PROXY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any of the variables; what a test sets is undone."""
    for name in (*NAMES, *map(str.upper, NAMES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("exempt", ["", "intranet.example"])
def test_loopback_goes_through_no_proxy(variables: pytest.MonkeyPatch, exempt: str) -> None:
    variables.setenv("http_proxy", PROXY)
    variables.setenv("no_proxy", exempt)
    assert prepare_network() == ""
    with httpx.Client() as client:
        for host in ("127.0.0.1", "localhost", "[::1]", *filter(None, [exempt])):
            assert client._transport_for_url(httpx.URL(f"http://{host}:8")) is client._transport
        through = client._transport_for_url(httpx.URL("http://hub.example"))
        assert through is not client._transport


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SSL_CERT_FILE", "/nonexistent/ca.pem", "No such file or directory"),
        ("HTTPS_PROXY", "ftp://127.0.0.1:9", "Unknown scheme"),
        ("http_proxy", "http://127.0.0.1:port", "Invalid port"),
    ],
)
def test_what_httpx_cannot_use_is_reported_in_its_words(
    variables: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    variables.setenv(name, value)
    assert said in prepare_network()
