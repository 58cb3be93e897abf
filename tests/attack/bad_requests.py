"""Bad requests for the OpenAI-compatible endpoint: every field with values that it cannot have, and
bodies that are no request at all. ``random_requests`` makes as many more as one likes, and
``random_visits`` such to any route of the page or the endpoint."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES = "/v1/responses"
MODEL = "scripted"
MESSAGES: list[Any] = [{"role": "user", "content": "Hello"}]
HALF = "\ud83d"
DEEP: Any = json.loads("[" * 400 + "]" * 400)
BAD_VALUES: dict[str, list[Any]] = {
    "model": [None, 1, "", "nope", "../../etc/passwd", "x" * 5000, {}, HALF],
    "messages": [
        None, 1, [], {}, [[]], [None], DEEP, MESSAGES * 1001, [{"role": "user"}],
        [{"role": "tool", "content": "x"}], [{"role": "user", "content": " \n"}],
        [{"role": "user", "content": HALF}], [{"role": ["user"], "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": "http://x"}]}],
        [{"role": "user", "content": ["x"]}], [{"role": "user", "content": "x" * 250_000}],
        [{"role": "assistant", "content": None, "tool_calls": [{}]}, *MESSAGES],
    ],
    "prompt": [None, 1, "", {}, [], [[]], ["a", 1], ["a"] * 129, [-1], [10**9], [True], HALF],
    "max_tokens": [0, -2, 1.5, "5", 10**400, True, [], 2**31],
    "temperature": [-1, 2.1, "1", 10**400, []],
    "seed": [-(2**63) - 1, 1.5, 2**63, "7", True],
    "stop": [1, [""], ["a"] * 65, [1], ["x" * 201], HALF],
    "stop_token_ids": [1, ["x"], [-1], [1.5], [10**400], [1] * 65],
    "stream_options": [1, [], {"include_usage": 1}],
    "n": [0, 129, "1"],
    "chat_template_kwargs": [1, [], {"messages": []}, {HALF: 1}],
    "min_tokens": [-1, 4097, 10**400],
    "logit_bias": [{"50256": -100}, {"x": 1}, {"1": True}, [1], [DEEP], {"9" * 5000: 1},
                   {str(token): 1 for token in range(301)}],
    "tools": [[{"type": "function"}], {}],
    "tau": [-0.1, 1.1, "0.5", 10**400, True, {}],
    "block_size": [0, 17, 3.5, "four", 9, True],
    "method": ["nope", 1, [], "__class__"],
}  # fmt: skip
BAD_RESPONSES: dict[str, list[Any]] = {
    "input": [
        None, 1, [], {}, [[]], [None], DEEP, MESSAGES * 1001, HALF, " ", [{"role": "user"}],
        [{"role": "assistant", "content": "x"}], [{"type": "item_reference", "id": "x"}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}],
    ],
    "instructions": [1, HALF, "x" * 250_000],
    "max_output_tokens": [0, 1.5, "5", 10**400],
    "metadata": [1, {"a": 1}, {HALF: "a"}],
    "previous_response_id": ["resp_1", 1],
}  # fmt: skip
ONLY = {"messages": CHAT, "chat_template_kwargs": CHAT, "prompt": TEXT}
BODIES = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe\x00", b"{}", b"[" * 100_000,
    b'{"a":' * 50_000, b'{"model": NaN}', b'{"tau": Infinity}', b"9" * 10_000, b"\x00" * 100,
    '{"model": "ü"'.encode("utf-16"), b"a=b&c=d",
]  # fmt: skip
NOT_FINITE = ["NaN", "Infinity", "-Infinity", "1e999"]


def good(path: str, model: str = MODEL) -> dict[str, Any]:
    """A request that is answered."""
    if path == RESPONSES:
        return {"model": model, "input": "Hello", "max_output_tokens": 4}
    body: dict[str, Any] = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hello"}
    return {"model": model, "max_tokens": 4, **body}


TABLES = {CHAT: BAD_VALUES, TEXT: BAD_VALUES, RESPONSES: BAD_RESPONSES}
OPTIONAL = {"max_tokens", "max_output_tokens"}


def bad_requests(model: str = MODEL) -> Iterator[tuple[str, bytes]]:
    """(path, body): broken bodies, and each field missing or with each bad value."""
    for path, table in TABLES.items():
        whole = good(path, model)
        yield from ((path, body) for body in BODIES)
        for name in whole.keys() - OPTIONAL:
            yield path, dumped({key: value for key, value in whole.items() if key != name})
        for name, values in table.items():
            if ONLY.get(name, path) == path:
                yield from ((path, dumped({**whole, name: value})) for value in values)
        if table is BAD_VALUES:
            for name in ("temperature", "tau", "top_p", "seed", "max_tokens"):
                for spelled in NOT_FINITE:
                    body = dumped({**whole, name: "@"})
                    yield path, body.replace(b'"@"', spelled.encode())


def random_requests(seed: int, model: str = MODEL) -> Iterator[tuple[str, bytes]]:
    """Without end: some fields bad at once, and bodies with bytes changed or cut."""
    rng = random.Random(seed)
    whole = list(bad_requests(model))
    while True:
        path, body = rng.choice(whole)
        if rng.random() < 0.5 and len(body) > 2:
            at = rng.randrange(len(body))
            body = body[:at] + rng.randbytes(rng.randrange(4)) + body[at + rng.randrange(4) :]
        else:
            values = TABLES[path]
            fields = rng.sample([n for n in values if ONLY.get(n, path) == path], 3)
            body = dumped({**good(path, model), **{n: rng.choice(values[n]) for n in fields}})
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
ODD: list[Any] = [
    None, True, 0, -1, 10**6, 10**400, 1.5, "", "x", "0", [], {}, [[]], HALF, DEEP, ["x"] * 40,
    {"path": "/etc/passwd"}, {"a": 1}, "\0", "http://x", "generate", "predict", "judge",
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
