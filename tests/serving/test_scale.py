"""Replicas without Ray: what ``serve --ray`` validates and asks of Ray, and the middleware of Ray's
proxies over scripted replicas.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import scripted_replicas
from scripted_server import NAME

from mars_runtime.__main__ import main
from mars_runtime.model.config import CheckpointError
from mars_runtime.serving import replicas, retry
from mars_runtime.serving.replicas import Replica, ReplicaError
from mars_runtime.serving.retry import NO_MACHINE, NUM_TRIES, TORN, Retry
from mars_runtime.serving.server import KEY, PlanError, ServePlan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "wrong",
    [{"max_runs": 0}, {"max_waiting": -1}, {"threads": 0}, {"min_replicas": 3}, {"busy_tau": 2}],
)
def test_a_plan_that_makes_no_sense_is_a_sentence(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError, match=r"\.$"):
        ServePlan("mars-tiny", **wrong)


def test_what_the_commands_refuse_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "has_ray", lambda: False)
    assert main(["serve", "--ray", "--checkpoint", "mars-tiny"]) == 2
    assert capsys.readouterr().err == f"{replicas.NO_RAY}\n"
    assert "pip install -r requirements-serve.txt" in replicas.NO_RAY
    assert "ray[serve]>=2.60" in (ROOT / "requirements-serve.txt").read_text(encoding="utf-8")
    monkeypatch.setattr(replicas, "has_ray", lambda: True)
    assert main(["serve", "--ray", "--checkpoint", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_replica_that_cannot_serve_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key of the others, with a model that fails to load, without its engine."""

    def bring(plan: ServePlan) -> Any:
        raise CheckpointError("The file is damaged.")

    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(ReplicaError, match=KEY):
        Replica(ServePlan("x"), lambda plan: pytest.fail("loaded"), has_key=True)
    with pytest.raises(ReplicaError, match="damaged"):
        Replica(ServePlan("x"), bring, has_key=False)
    replica = Replica(ServePlan(NAME), scripted_replicas.bring, has_key=False)
    replica.check_health()
    replica.leave()
    with pytest.raises(ReplicaError, match=r"\.$"):
        replica.check_health()


# The middleware of Ray's proxies.

Application = Callable[[Any, Any, Any], Awaitable[None]]
EVENTS, JSON, TEXT = (
    [(b"content-type", kind)] for kind in (b"text/event-stream", b"application/json", b"text/plain")
)


def start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def replica(*messages: dict[str, Any]) -> Application:
    """A replica that sends these and is gone: without a last part it died."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        bodies.append((await receive())["body"])
        for message in messages:
            await send(dict(message))

    return app


bodies: list[bytes] = []


def asked(*replicas: Application, path: str = "/v1/completions") -> tuple[int, Any, bytes]:
    """Return what a client reads; the replicas are asked in turn, the last one repeatedly."""
    left, sent = list(replicas), list[dict[str, Any]]()
    posted = [{"type": "http.request", "body": b"{}", "more_body": False}]
    bodies.clear()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(scope, receive, send)

    async def receive() -> dict[str, Any]:
        return posted.pop() if posted else await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(Retry(app)(scope, receive, send))
    assert [message["type"] for message in sent].count("http.response.start") == 1
    assert sent[-1].get("more_body", False) is False
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], dict(sent[0]["headers"]), body


ANSWER = replica(start(200, JSON), part(b'{"a":', True), part(b"1}", False))


def assert_refused(actual: tuple[int, Any, bytes], status: int, sentence: str = "") -> None:
    assert actual[0] == status
    assert int(actual[1][b"retry-after"]) >= 1
    assert actual[1][b"content-length"] == str(len(actual[2])).encode()
    message = json.loads(actual[2])["error"]["message"]
    assert message.endswith(".")
    assert message == sentence or not sentence


def test_an_answer_and_our_own_refusals_pass_unchanged() -> None:
    assert asked(ANSWER) == (200, dict(JSON), b'{"a":1}')
    refusal = replica(start(429, JSON), part(b'{"error":{}}', False))
    assert asked(refusal)[::2] == (429, b'{"error":{}}')
    theirs = replica(start(500, TEXT), part(b"as it is", False))
    assert asked(theirs, path="/-/healthz")[::2] == (500, b"as it is")


@pytest.mark.parametrize("dead", [replica(), replica(start(200, EVENTS))])
def test_a_request_without_any_answer_is_sent_again(dead: Application) -> None:
    assert asked(dead, ANSWER)[2] == b'{"a":1}'
    assert bodies == [b"{}", b"{}"]


def test_without_any_replica_it_is_a_sentence() -> None:
    assert_refused(asked(replica()), 503, NO_MACHINE)
    assert len(bodies) == NUM_TRIES


def test_health_is_not_held_until_there_is_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(scope: Any, receive: Any, send: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Future()
        await ANSWER(scope, receive, send)

    assert retry.HEALTH_SECONDS < 3
    monkeypatch.setattr(retry, "HEALTH_SECONDS", 0.1)
    assert_refused(asked(held, path="/health"), 503, NO_MACHINE)
    assert asked(replica(), ANSWER, path="/health")[0] == 200


def test_a_torn_stream_ends_with_a_sentence_and_is_not_begun_again() -> None:
    torn = replica(start(200, EVENTS), part(b'data: {"a":1}\n\n', True))
    status, _, body = asked(torn, ANSWER)
    first, second, last, rest = body.decode().split("\n\n")
    assert (status, first, last, rest) == (200, 'data: {"a":1}', "data: [DONE]", "")
    assert json.loads(second.removeprefix("data: "))["error"]["message"] == TORN
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("theirs", "ours"), [(429, 429), (503, 503), (500, 503), (408, 503), (404, 503)]
)
def test_refusals_of_ray_become_ours(theirs: int, ours: int) -> None:
    headers = [*TEXT, (b"content-length", b"7")]
    assert_refused(asked(replica(start(theirs, headers), part(b"Ray: no", False))), ours)
