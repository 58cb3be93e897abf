"""Replicas without Ray: what ``serve --ray`` is asked for and what Ray would be told, what stands
in Ray's proxies over replicas that are written by hand.
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
from mars_runtime.serving.retry import NOBODY, NUM_TRIES, TORN, Retry
from mars_runtime.serving.server import KEY, PlanError, ServePlan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "wrong", [{"max_runs": 0}, {"max_waiting": -1}, {"threads": 0}, {"min_replicas": 3}]
)
def test_a_plan_that_makes_no_sense_is_a_sentence(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError, match=r"\.$"):
        ServePlan("mars-tiny", **wrong)


def test_without_ray_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "is_there", lambda: False)
    assert main(["serve", "--ray", "--checkpoint", "mars-tiny"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told == replicas.NO_RAY
    assert "pip install -r requirements-serve.txt" in told
    assert "ray[serve]>=2.60" in (ROOT / "requirements-serve.txt").read_text(encoding="utf-8")


def test_a_checkpoint_that_is_not_there_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "is_there", lambda: True)
    assert main(["serve", "--ray", "--checkpoint", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_replica_is_given_its_cores_its_line_and_time_to_finish() -> None:
    told = replicas.options(ServePlan("x", max_runs=3, max_waiting=5, threads=2, max_replicas=4))
    assert told["ray_actor_options"] == {"num_cpus": 2}
    assert told["autoscaling_config"]["min_replicas"] == 1
    assert told["autoscaling_config"]["max_replicas"] == 4
    assert told["autoscaling_config"]["target_ongoing_requests"] == 3
    assert told["max_ongoing_requests"] > 8  # settings find room beside what is served
    assert told["backpressure_config"]["status_code"] == 429
    assert told["graceful_shutdown_timeout_s"] > 300
    fixed = replicas.options(ServePlan("x", min_replicas=2, max_replicas=2))
    assert fixed["num_replicas"] == 2
    assert "autoscaling_config" not in fixed


def test_why_replicas_did_not_start_is_found_in_what_ray_tells() -> None:
    told = "Traceback\nRayTaskError\n  mars_runtime.x.ReplicaError: The file is damaged.\n  at x"
    assert replicas.sentence_in(told) == "The replicas did not start: The file is damaged."
    assert replicas.sentence_in("?") == "The replicas did not start: see the logs of Ray."


def test_a_replica_without_the_key_of_the_others_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(ReplicaError, match=KEY):
        Replica(ServePlan("x"), lambda plan: pytest.fail("loaded"), has_key=True)


def test_a_replica_whose_model_fails_to_load_says_why() -> None:
    def bring(plan: ServePlan) -> Any:
        raise CheckpointError("The file is damaged.")

    with pytest.raises(ReplicaError, match="damaged"):
        Replica(ServePlan("x"), bring, has_key=False)


def test_a_replica_whose_engine_is_gone_is_not_healthy() -> None:
    replica = Replica(ServePlan(NAME), scripted_replicas.bring, has_key=False)
    replica.check_health()
    replica.leave()
    with pytest.raises(ReplicaError, match=r"\.$"):
        replica.check_health()


Application = Callable[[Any, Any, Any], Awaitable[None]]
EVENTS = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]
TEXT = [(b"content-type", b"text/plain")]


def start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def replica(*messages: dict[str, Any]) -> Application:
    """One that sends these and is gone: without a last part it died."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        bodies.append((await receive())["body"])
        for message in messages:
            await send(dict(message))

    return app


bodies: list[bytes] = []


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    bodies.clear()


def asked(*replicas: Application, path: str = "/v1/completions") -> tuple[int, Any, bytes]:
    """What a client reads; the replicas are asked in turn, the last one again and again."""
    left = list(replicas)
    sent: list[dict[str, Any]] = []
    posted = [{"type": "http.request", "body": b"{}", "more_body": False}]

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


def test_an_answer_passes_as_it_is() -> None:
    status, headers, body = asked(ANSWER)
    assert (status, headers[b"content-type"], body) == (200, b"application/json", b'{"a":1}')


@pytest.mark.parametrize("dead", [replica(), replica(start(200, EVENTS))])
def test_a_request_of_which_nothing_was_answered_starts_anew(dead: Application) -> None:
    assert asked(dead, ANSWER)[2] == b'{"a":1}'
    assert bodies == [b"{}", b"{}"]


def test_where_nobody_answers_it_is_a_sentence() -> None:
    status, headers, body = asked(replica())
    assert status == 503
    assert int(headers[b"retry-after"]) >= 1
    assert json.loads(body)["error"]["message"] == NOBODY
    assert len(bodies) == NUM_TRIES


def test_health_is_not_held_until_a_replica_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(scope: Any, receive: Any, send: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        await ANSWER(scope, receive, send)

    assert retry.HEALTH_SECONDS < 3
    monkeypatch.setattr(retry, "HEALTH_SECONDS", 0.1)
    status, headers, body = asked(held, path="/health")
    assert (status, json.loads(body)["error"]["message"]) == (503, NOBODY)
    assert int(headers[b"retry-after"]) >= 1
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
    told = [*TEXT, (b"content-length", b"7")]
    status, headers, body = asked(replica(start(theirs, told), part(b"Ray: no", False)))
    assert status == ours
    assert int(headers[b"retry-after"]) >= 1
    assert headers[b"content-length"] == str(len(body)).encode()
    assert json.loads(body)["error"]["message"].endswith(".")


def test_our_own_refusals_pass() -> None:
    own = replica(start(429, JSON), part(b'{"error":{}}', False))
    assert asked(own)[::2] == (429, b'{"error":{}}')


def test_what_is_not_ours_passes() -> None:
    theirs = replica(start(500, TEXT), part(b"as it is", False))
    assert asked(theirs, path="/-/healthz")[::2] == (500, b"as it is")
