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


def random_visits(seed: int, config: dict[str, Any]) -> Iterator[Visit]:
    """Without end, for a page with this config: every route, with what fits and what does not. None
    begins a run."""
    rng = random.Random(seed)
    private = [event for event in config["dependencies"] if not event["queue"]]
    parts = [part for part in config["components"] if part["props"].get("server_fns")]
    api = "/gradio_api"
    while True:
        event, part = rng.choice(private), rng.choice(parts)
        data = [rng.choice(ODD) for _ in range(rng.choice([0, 1, 2, len(event["inputs"])]))]
        run = {"fn_index": event["id"], "data": data, "session_hash": "attack"}
        call = {"component_id": part["id"], "fn_name": rng.choice(part["props"]["server_fns"])}
        bodies = {
            f"{api}/run/predict": run,
            f"{api}/run/predict/": run,
            f"{api}/queue/join": run,
            f"{api}/call/v2/{rng.choice(['generate', 'batch', 'nope'])}": {"tau": 0.5},
            f"{api}/call/{rng.choice(['compare', 'traces', 'nope'])}": {"data": data},
            f"{api}/component_server": {**call, "data": "x", "session_hash": "attack"},
            f"{api}/cancel": {"session_hash": "attack", "fn_index": 0, "event_id": "x"},
            f"{api}/reset": {"event_id": "x"},
        }
        kind = rng.random()
        if kind < 0.2:
            yield "GET", rng.choice(GETS), b""
        elif kind < 0.3:
            path, body = next(random_requests(rng.randrange(2**31)))
            yield "POST", path, body
        else:
            path, body_of = rng.choice(list(bodies.items()))
            names = rng.sample(list(body_of), rng.randrange(len(body_of) + 1))
            odd = {name: rng.choice(ODD) for name in names}
            left_out = rng.sample(list(body_of), 1) if rng.random() < 0.3 else []
            changed = {k: v for k, v in {**body_of, **odd}.items() if k not in left_out}
            extra = {rng.choice(["my-secret", "batched", "event_data", "trigger_id"]): "x"}
            spelled = dumped({**changed, **(extra if rng.random() < 0.2 else {})})
            yield "POST", path, rng.choice(BODIES) if rng.random() < 0.05 else spelled


def dumped(value: Any) -> bytes:
    """JSON with every character spelled out, halves of characters too."""
    return json.dumps(value).encode()
