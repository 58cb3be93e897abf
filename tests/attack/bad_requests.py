"""Odd requests to the OpenAI-compatible endpoint, and random ones to any route of the page."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from mars_runtime.serving.requests import ChatBody, TextBody
from mars_runtime.serving.responses import ResponsesBody

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES = "/v1/responses"
MODEL = "scripted"
HALF = "\ud83d"
DEEP: Any = json.loads("[" * 400 + "]" * 400)
ODD: list[Any] = [
    None, True, -1, 1.5, 10**400, "", "x" * 5000, HALF, [], {}, DEEP, ["x"] * 200, {HALF: [1]},
    {"path": "/etc/passwd"}, "\0", "http://x", "generate", "predict",
]  # fmt: skip
FIELDS = {CHAT: ChatBody, TEXT: TextBody, RESPONSES: ResponsesBody}
BODIES = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe\x00", b"{}", b"[" * 100_000,
    b'{"a":' * 50_000, b'{"model": NaN}', b'{"tau": 1e999}', b"9" * 10_000, b"\x00" * 100,
    '{"model": "ü"'.encode("utf-16"), b"a=b&c=d",
]  # fmt: skip


def good(path: str, model: str = MODEL) -> dict[str, Any]:
    """A request that is answered."""
    if path == RESPONSES:
        return {"model": model, "input": "Hello", "max_output_tokens": 4}
    messages = [{"role": "user", "content": "Hello"}]
    body: dict[str, Any] = {"messages": messages} if path == CHAT else {"prompt": "Hello"}
    return {"model": model, "max_tokens": 4, **body}


def odd_values(field: str) -> list[Any]:
    """Return ODD, also as a message and as parts of one."""
    if field not in ("messages", "input"):
        return ODD
    parts = [{"role": "user", "content": value} for value in ODD]
    return [*ODD, *([value] for value in (*ODD, *parts)), [{"role": ["user"], "content": "x"}]]


def odd_requests() -> Iterator[tuple[str, bytes]]:
    """(path, body): broken bodies, and each field with each odd value, which may fit it."""
    for path, body in FIELDS.items():
        yield from ((path, broken) for broken in BODIES)
        for name in body.model_fields:
            if path == CHAT or name not in ChatBody.model_fields:
                for value in odd_values(name):
                    yield path, dumped({**good(path), name: value})


def random_requests(seed: int) -> Iterator[tuple[str, bytes]]:
    """Without end: three fields odd at once, and bodies with bytes changed or cut."""
    rng = random.Random(seed)
    while True:
        path = rng.choice(list(FIELDS))
        fields = rng.sample(list(FIELDS[path].model_fields), 3)
        body = dumped({**good(path), **{name: rng.choice(odd_values(name)) for name in fields}})
        if rng.random() < 0.5:
            at = rng.randrange(len(body))
            body = body[:at] + rng.randbytes(rng.randrange(4)) + body[at + rng.randrange(4) :]
        yield path, body


Visit = tuple[str, str, bytes]
"""Method, path and query as they go over the wire, body."""
LONG = "x" * 9000
GETS = [
    "/", "/config", "/config?deep_link=x", "/theme.css?v=1", "/assets/x.js", "/static/img/x.svg",
    "/assets/x%00.js", "/assets/%2e%2e/x", f"/assets/{LONG}", f"/static/{LONG}", "/?view=api",
    "/gradio_api/info?all_endpoints=x", "/gradio_api/openapi.json", "/gradio_api/app_id",
    "/gradio_api/call/generate/x", "/gradio_api/call/v2/nope/x", "/gradio_api/startup-events",
    "/gradio_api/queue/data?session_hash=x", "/gradio_api/queue/data", "/gradio_api/queue/data/x",
    "/v1/models", "/v1/models/x", "/v1/models/%2e%2e%2fetc", "/v1/models//x", "/health/x",
    f"/v1/models/{LONG}", f"/{LONG}", "/%ff%fe", "/v1/x", "/metrics", "/health",
]  # fmt: skip


def odd_visits(config: dict[str, Any]) -> Iterator[Visit]:
    """Every route of a page with this config, with keys missing, odd or unknown. No run begins."""
    event = next(it for it in config["dependencies"] if not it["queue"] and it["inputs"])
    part = next(it for it in config["components"] if it["props"].get("server_fns"))
    data = [None] * len(event["inputs"])
    run = {"fn_index": event["id"], "data": data, "session_hash": "attack"}
    call = {"component_id": part["id"], "fn_name": part["props"]["server_fns"][0], "data": "x"}
    bodies: dict[str, dict[str, Any]] = {
        "run/predict": run,
        "run/predict/": {**run, "data": ["x", *data[1:]]},
        "queue/join": {**run, "data": data[1:]},
        "call/v2/generate": {"tau": 0.5},
        "call/compare": {"data": data},
        "component_server": {**call, "session_hash": "attack"},
        "cancel": {"session_hash": "attack", "fn_index": 0, "event_id": "x"},
        "reset": {"event_id": "x"},
    }
    yield from (("GET", path, b"") for path in GETS)
    for name, body in bodies.items():
        path = f"/gradio_api/{name}"
        yield from (("POST", path, broken) for broken in BODIES)
        yield "POST", path, dumped({**body, "my-secret": "x", "batched": True, "event_data": "x"})
        for key in body:
            yield "POST", path, dumped({name: body[name] for name in body if name != key})
            yield from (("POST", path, dumped({**body, key: value})) for value in ODD)


def dumped(value: Any) -> bytes:
    """JSON with every character spelled out, halves of characters too."""
    return json.dumps(value).encode()
