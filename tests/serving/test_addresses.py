"""How requests reach the endpoint: addresses, other origins, keys, and proxies."""

from __future__ import annotations

import asyncio
import codecs
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scripted_server import ASK, NAME, Oracle, Place, chat, serving

from mars_runtime.serving.app import NO_METHOD
from mars_runtime.serving.limits import NO_ADDRESS, Proxies, address_of
from mars_runtime.serving.requests import NO_JSON, Caps
from mars_runtime.serving.server import (
    KEY,
    ORIGINS,
    PROXIES,
    AddressInUseError,
    PlanError,
    allowed_origins,
    api_key,
    bound,
    num_proxies,
    url_of,
)
from tests.engine.scripted import eventually

# Where it listens.

LOOPBACK = {"127.0.0.1", "::1"}


def reached(listener: socket.socket, host: str) -> bool:
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
def test_it_is_reached_at_the_printed_address(host: str, reaches: set[str]) -> None:
    with bound(host, 0) as listener:
        assert {item for item in LOOPBACK if reached(listener, item)} == reaches
        url = httpx.URL(url_of(*listener.getsockname()[:2]))
        assert url.port == listener.getsockname()[1]
        assert reached(listener, url.host)
        with socket.create_connection(listener.getsockname()[:2]), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_that_is_none_is_one_sentence() -> None:
    places = [(host, 8000) for host in ("no.such.name.invalid", "256.1.1.1", "::g", "\0")]
    for host, port in (*places, ("127.0.0.1", -1), ("127.0.0.1", 65_536)):
        with pytest.raises(AddressInUseError, match="Choose another --port"):
            bound(host, port)


# Paths and bodies.

CHAT: dict[str, Any] = {"model": NAME, "messages": ASK}
POSTED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": NAME, "prompt": "Once"},
    "/v1/responses": {"model": NAME, "input": "Hello"},
}
MODELS = ["/v1/models", f"/v1/models/{NAME}"]


@pytest.mark.parametrize("path", POSTED)
def test_a_slash_and_a_byte_order_mark_make_no_difference(place: Place, path: str) -> None:
    plain, slashed = (place.http.post(item, json=POSTED[path]) for item in (path, f"{path}/"))
    assert (slashed.status_code, plain.status_code) == (200, 200)
    assert slashed.headers["content-type"] == plain.headers["content-type"]
    body = codecs.BOM_UTF8 + json.dumps(POSTED[path]).encode()
    headers = {"content-type": "application/json"}
    assert place.http.post(path, content=body, headers=headers).status_code == 200
    refused = place.http.post(path, content=codecs.BOM_UTF8 + body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, NO_JSON)


# Pages of other origins.

APP, OTHER = "https://app.example", "https://other.example"
WANTED = "authorization, content-type, x-stainless-os"
ALLOWED, CREDENTIALS = "access-control-allow-origin", "access-control-allow-credentials"


def preflight(http: Any, origin: str, path: str = "/v1/chat/completions") -> Any:
    headers = {"access-control-request-method": "POST", "access-control-request-headers": WANTED}
    return http.options(path, headers={"origin": origin, **headers})


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An endpoint with a key that pages of APP may call."""
    folder = tmp_path_factory.mktemp("opened")
    with serving(folder, Oracle(forward_seconds=0.001), key="secret", origins=(APP,)) as server:
        yield server


def test_no_other_origin_may_call_unless_it_is_named(place: Place, opened: Place) -> None:
    refused = preflight(place.http, APP)
    assert (refused.status_code, refused.json()["error"]["message"]) == (405, NO_METHOD)
    answers = [refused, place.http.post("/v1/chat/completions", json=CHAT, headers={"origin": APP})]
    assert not [name for answer in answers for name in answer.headers if "access-control" in name]
    refused = preflight(opened.http, OTHER)
    assert refused.status_code == 400
    for item in (refused, opened.http.get("/health", headers={"origin": OTHER})):
        assert ALLOWED not in item.headers


def test_a_page_of_a_named_origin_may_call_and_read_refusals(opened: Place) -> None:
    request = preflight(opened.http, APP)
    assert (request.status_code, request.headers[ALLOWED]) == (200, APP)
    assert CREDENTIALS not in request.headers
    headers = {"origin": APP, "authorization": "Bearer secret"}
    answer = opened.http.post("/v1/chat/completions", json=CHAT, headers=headers)
    refused = opened.http.post("/v1/chat/completions", json=CHAT, headers={"origin": APP})
    assert (answer.status_code, refused.status_code) == (200, 401)
    assert answer.headers[ALLOWED] == refused.headers[ALLOWED] == APP


# Variables of the environment.


VARIABLES: dict[str, tuple[Any, dict[str, Any]]] = {
    ORIGINS: (
        allowed_origins,
        {
            **{" ": (), "*": ("*",), "chrome-extension://abc": ("chrome-extension://abc",)},
            " https://App.example , http://[::1]:5173,": (APP, "http://[::1]:5173"),
        },
    ),
    PROXIES: (num_proxies, {"": 0, " 2 ": 2}),
    KEY: (api_key, {"a key of some length\n": "a key of some length"}),
}
NO_ORIGINS = ["app.example", f"{APP}/", f"{APP}/x", "https://*.x", "null", f"{APP} {OTHER}", "://x"]


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_is_read_or_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    read, values = VARIABLES[name]
    for text, wanted in values.items():
        monkeypatch.setenv(name, text)
        assert read() == wanted
    for text in {ORIGINS: NO_ORIGINS, PROXIES: ["-1", "x"], KEY: ["short"]}[name]:
        monkeypatch.setenv(name, text)
        with pytest.raises(PlanError, match=rf"^{name} must .*\.?$"):
            read()


# Keys, and the client's address.


def test_the_key_is_required_and_guesses_are_limited(tmp_path: Path) -> None:
    """Past the limit no key is compared, not even the right one, until the minute is over."""
    key = "ünlocked, of some length"
    with serving(tmp_path, Oracle(), key=key) as place:

        def status(path: str = "/v1/models", sent: str = "", scheme: str = "Bearer") -> int:
            headers = {"authorization": f"{scheme} {sent or key}".encode()}
            return place.http.request("GET", path, headers=headers).status_code

        assert [status(scheme=scheme) for scheme in ("Bearer", "bearer", "BEARER ")] == [200] * 3
        assert status(scheme="Basic") == 401
        for path in MODELS:
            assert place.http.get(path).status_code == 401
        for path in POSTED:
            assert place.http.post(path, json={}).status_code == 401
        codes = [status(sent=sent) for sent in ("none", key[:-1], "x" * 10_000, *"abc")]
        assert codes == [401] * 4 + [429] * 2
        refused = place.http.get("/v1/models", headers={"authorization": f"Bearer {key}".encode()})
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert place.http.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("number", "headers", "wanted"),
    [
        (0, [b"1.1.1.1"], "127.0.0.1"),
        (1, [], "127.0.0.1"),
        (1, [b"6.6.6.6, 1.1.1.1"], "1.1.1.1"),
        (1, [b"6.6.6.6", b"::1"], "::/64"),
        (1, [b"1.1.1.1:4711"], "1.1.1.1"),
        (1, [b"[2001:db8:1:2:3::4]:4711"], "2001:db8:1:2::/64"),
        (1, [b"2001:db8:1:2:ffff::9"], "2001:db8:1:2::/64"),
        (1, [b"::ffff:1.1.1.1"], "1.1.1.1"),
        (2, [b"6.6.6.6, 1.1.1.1 ,2.2.2.2"], "1.1.1.1"),
        (2, [b"1.1.1.1"], "127.0.0.1"),
        (1, [b"1.1.1.1,"], "127.0.0.1"),
    ],
)
def test_whose_a_request_is_behind_proxies(number: int, headers: list[bytes], wanted: str) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(address_of(scope["client"]))

    named = [(b"x-forwarded-for", value) for value in headers]
    scope = {"type": "http", "headers": named, "client": ("127.0.0.1", 5)}
    asyncio.run(Proxies(app, number)(scope, None, None))
    assert seen == [wanted]
    assert address_of(None) == NO_ADDRESS


def test_neighbours_have_limits_of_their_own_and_take_turns(tmp_path: Path) -> None:
    """An address with many requests delays another one by what it has begun, not by its queue."""
    backend, caps = Oracle(is_held=True), Caps(max_runs_per_address=5)
    first, second = ({"x-forwarded-for": f"10.0.0.{n}"} for n in (1, 2))
    more = {"max_runs": 1, "max_waiting": 8, "num_proxies": 1}
    with serving(tmp_path, backend, caps=caps, **more) as place:
        streams = [chat(place, stream=True, extra_headers=first) for _ in range(5)]
        with pytest.raises(openai.RateLimitError):
            chat(place, extra_headers=first)
        other = [{"role": "user", "content": "Hello"}]
        streams.append(chat(place, other, stream=True, extra_headers=second))
        assert eventually(lambda: place.num_open == 6)
        backend.released.set()
        for stream in streams:
            list(stream)
        assert backend.prompts.index(tuple(place.ids("Hello"))) <= 2
