"""How requests reach the endpoint: a slash at the end of the path, a BOM before the JSON, pages of
other origins.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_server import NAME, Oracle, Place, serving
from starlette.applications import Starlette
from starlette.testclient import TestClient

from mars_runtime.__main__ import main
from mars_runtime.serving.app import NO_METHOD
from mars_runtime.serving.requests import NO_JSON
from mars_runtime.serving.retry import middlewares
from mars_runtime.serving.server import ORIGINS, PlanError, allowed_origins

CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}
POSTED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": NAME, "prompt": "Once"},
    "/v1/responses": {"model": NAME, "input": "Hello"},
    "/v1/runs": {"model": NAME, "lanes": [{"prompt_ids": [104]}]},
}
READ = [
    "/v1/models",
    f"/v1/models/{NAME}",
    f"/v1/models/{NAME}/about",
    "/health",
    "/metrics",
    "/docs",
    "/openapi.json",
]


@pytest.mark.parametrize("path", POSTED)
def test_a_post_with_a_trailing_slash_is_served_without_a_redirect(place: Place, path: str) -> None:
    plain, slashed = (place.http.post(each, json=POSTED[path]) for each in (path, f"{path}/"))
    assert (slashed.status_code, plain.status_code) == (200, 200)
    assert slashed.headers["content-type"] == plain.headers["content-type"]


@pytest.mark.parametrize("path", READ)
def test_a_get_with_a_trailing_slash_is_served_without_a_redirect(place: Place, path: str) -> None:
    assert place.http.get(f"{path}/").status_code == place.http.get(path).status_code == 200


def test_a_run_is_steered_and_stopped_with_a_trailing_slash(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(forward_seconds=0.05)) as place:
        stream = place.client.chat.completions.create(**CHAT, stream=True)
        run = next(iter(stream)).id
        steered = place.http.post(f"/v1/runs/{run}/settings/", json={"tau": 0.5})
        stopped = place.http.delete(f"/v1/runs/{run}/")
        assert (steered.status_code, stopped.status_code) == (204, 204)
        stream.close()


def test_a_slash_makes_no_other_path(place: Place) -> None:
    assert place.http.get("/v1/").status_code == 404
    assert place.http.post("/v1/models/", json={}).status_code == 405


@pytest.mark.parametrize("path", POSTED)
def test_a_byte_order_mark_before_the_json_is_accepted(place: Place, path: str) -> None:
    body = codecs.BOM_UTF8 + json.dumps(POSTED[path]).encode()
    headers = {"content-type": "application/json"}
    assert place.http.post(path, content=body, headers=headers).status_code == 200
    refused = place.http.post(path, content=codecs.BOM_UTF8 + body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, NO_JSON)


APP, OTHER = "https://app.example", "https://other.example"
WANTED = "authorization, content-type, x-stainless-os"


def preflight(http: httpx.Client, origin: str, path: str = "/v1/chat/completions") -> Any:
    """What a browser asks before it posts from a page of another origin."""
    headers = {"access-control-request-method": "POST", "access-control-request-headers": WANTED}
    return http.options(path, headers={"origin": origin, **headers})


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An endpoint with a key that pages of APP may call."""
    folder = tmp_path_factory.mktemp("opened")
    with serving(folder, Oracle(forward_seconds=0.001), key="secret", origins=(APP,)) as found:
        yield found


def test_no_other_origin_may_call_unless_it_is_named(place: Place) -> None:
    refused = preflight(place.http, APP)
    assert (refused.status_code, refused.json()["error"]["message"]) == (405, NO_METHOD)
    answers = [refused, place.http.post("/v1/chat/completions", json=CHAT, headers={"origin": APP})]
    assert not [name for each in answers for name in each.headers if "access-control" in name]


def test_a_page_of_a_named_origin_may_call(opened: Place) -> None:
    asked = preflight(opened.http, APP)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == APP
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-headers"] == WANTED
    assert "access-control-allow-credentials" not in asked.headers
    headers = {"origin": APP, "authorization": "Bearer secret"}
    answer = opened.http.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", CHAT, 401),
        ("/v1/nothing", {}, 404),
        ("/v1/models", {}, 405),
        ("/v1/completions", {"model": "x" * 1_100_000}, 413),
    ],
)
def test_a_page_of_a_named_origin_may_read_refusals(
    opened: Place, path: str, body: dict[str, Any], status: int
) -> None:
    refused = opened.http.post(path, json=body, headers={"origin": APP})
    assert refused.status_code == status
    assert refused.headers["access-control-allow-origin"] == APP
    assert "retry-after" in refused.headers["access-control-expose-headers"]


def test_a_page_of_another_origin_may_not(opened: Place) -> None:
    refused = preflight(opened.http, OTHER)
    assert refused.status_code == 400
    answer = opened.http.get("/health", headers={"origin": OTHER})
    for each in (refused, answer):
        assert "access-control-allow-origin" not in each.headers


def test_any_origin_may_call_without_credentials(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(), origins=("*",)) as place:
        asked = preflight(place.http, OTHER)
        answer = place.http.get("/v1/models", headers={"origin": OTHER, "cookie": "a=b"})
        for each in (asked, answer):
            assert each.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in each.headers


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        (" ", ()),
        ("*", ("*",)),
        (" https://App.example , http://[::1]:5173,", (APP, "http://[::1]:5173")),
        ("chrome-extension://abc", ("chrome-extension://abc",)),
    ],
)
def test_the_origins_are_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, origins: tuple[str, ...]
) -> None:
    monkeypatch.setenv(ORIGINS, text)
    assert allowed_origins() == origins


@pytest.mark.parametrize(
    "text",
    [
        "app.example",
        f"{APP}/",
        f"{APP}/chat",
        "https://*.example",
        "null",
        f"{APP} {OTHER}",
        "://x",
    ],
)
def test_what_is_no_origin_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(ORIGINS, text)
    with pytest.raises(PlanError, match=f"^{ORIGINS} must be ") as refused:
        allowed_origins()
    assert repr(text) in str(refused.value)


def test_an_origin_that_is_none_ends_the_command_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ORIGINS, "app.example")
    for more in ([], ["--ray"]):
        assert main(["serve", "--port", "0", *more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(ORIGINS)


def test_pages_of_a_named_origin_may_call_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every proxy of Ray's puts before its replicas."""
    monkeypatch.setenv(ORIGINS, APP)
    client = TestClient(Starlette(middleware=middlewares()))
    assert preflight(client, APP).headers["access-control-allow-origin"] == APP
    large = client.post("/v1/completions", content=b"x" * 1_100_000, headers={"origin": APP})
    assert (large.status_code, large.headers["access-control-allow-origin"]) == (413, APP)
    monkeypatch.delenv(ORIGINS)
    refused = preflight(TestClient(Starlette(middleware=middlewares())), APP)
    assert "access-control-allow-origin" not in refused.headers
