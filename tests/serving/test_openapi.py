"""What may be posted is described as it is validated, and a wrong field is named in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openai")

from fastapi.openapi.models import OpenAPI

from mars_runtime.serving.requests import HARMLESS, RESERVED, SERVED, ChatBody, TextBody
from mars_runtime.serving.responses import ResponsesBody
from mars_runtime.settings import RECOMMENDED, SETTINGS
from tests.serving.scripted_server import NAME, Oracle, Place, serving

HEADERS = {"authorization": "Bearer secret", "content-type": "application/json"}
HELLO = [{"role": "user", "content": "Hello"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES = "/v1/responses"
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"model": NAME, "messages": HELLO},
    TEXT: {"model": NAME, "prompt": "Once"},
    RESPONSES: {"model": NAME, "input": "Once"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("described")
    with serving(folder, Oracle(forward_seconds=0.0), key="secret") as server:
        yield server


@pytest.fixture(scope="module")
def document(place: Place) -> Any:
    return place.http.get("/openapi.json").json()


def test_the_document_is_valid_and_names_every_body(document: Any) -> None:
    OpenAPI.model_validate(document)
    for path in GOOD:
        (operation,) = document["paths"][path].values()
        taken = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert taken.rpartition("/")[2] in document["components"]["schemas"]
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(document)):
        assert name in document["components"]["schemas"]


@pytest.mark.parametrize("body", ["ChatBody", "TextBody", "ResponsesBody"])
def test_a_setting_is_described_as_its_table_has_it(document: Any, body: str) -> None:
    fields = document["components"]["schemas"][body]["properties"]
    assert set(fields) & set(SETTINGS) - {"max_new_tokens"} == set(SERVED)
    for name in SERVED:
        wanted = {**SETTINGS[name], "default": getattr(RECOMMENDED, name)}
        if name == "seed":  # int64, as OpenAI's
            wanted |= {"minimum": float(-(2**63)), "maximum": float(2**63 - 1)}
        if name == "logit_bias":  # an object, as OpenAI's
            wanted |= {"type": "object", "default": []}
            wanted = {key: wanted[key] for key in ("type", "default", "description")}
        assert fields[name].items() >= wanted.items(), name


def test_the_page_describes_every_field_and_loads_nothing(place: Place) -> None:
    answer = place.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", answer.text)
    for name in (*SERVED, "messages", "prompt", "top_logprobs", "input"):
        assert f"<code>{name}</code>" in answer.text
    for path in GOOD:
        assert f"POST {path}</code>" in answer.text


def message(role: str = "user", **more: Any) -> list[dict[str, Any]]:
    return [{"role": role, **more}]


SETTINGS_OF_ALL: dict[str, Any] = {
    "method": "nope", "tau": 1.1, "block_size": 17, "metric": "nope", "lossless": 1,
    "temperature": 2.1, "seed": 2**63, "mask_layout": "nope", "lookup": "yes", "top_p": 0,
    "tau_policy": 1, "agreement_target": 1, "repetition_penalty": 0.5, "stop_loops": 0,
    "presence_penalty": -3, "frequency_penalty": "1", "logit_bias": {"1": 101}, "top_k": -2,
    "min_p": 1.5, "min_tokens": 4097, "ignore_eos": 2,
}  # fmt: skip
FIELDS_OF_ALL = {
    **SETTINGS_OF_ALL, "model": None, "stop": ["x"] * 65, "stop_token_ids": [-1], "stream": 1,
    "stream_options": [],
}  # fmt: skip
COMPLETION = {
    **FIELDS_OF_ALL, "max_tokens": 6.5, "max_completion_tokens": True, "n": 129, "best_of": 3,
}  # fmt: skip
BAD: dict[str, dict[str, Any]] = {
    CHAT: {
        **COMPLETION, "messages": [], "continue_final_message": True, "add_generation_prompt": "x",
        "enable_thinking": 1, "chat_template_kwargs": {next(iter(RESERVED)): 1}, "logprobs": 1,
        "top_logprobs": 1,
    },
    TEXT: {**COMPLETION, "prompt": ["a", 1], "echo": 1, "parse_special": "x", "logprobs": 4},
    RESPONSES: {
        **FIELDS_OF_ALL, "input": [], "instructions": 7, "max_output_tokens": 0, "metadata": 1,
        "text": 1, "include": ["x"],
    },
}  # fmt: skip
"""For each field of a body a value that it cannot have."""

# Route, what is changed of a good request, and the field that is named.
MORE: list[tuple[str, dict[str, Any], str | None]] = [
    (CHAT, {"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    (CHAT, {"top_logprobs": 4, "logprobs": True}, "top_logprobs"),
    (CHAT, {"logprobs": True, "metric": "margin"}, "logprobs"),
    (TEXT, {"echo": True, "logprobs": 0}, "echo"),
    (CHAT, {"echo": True}, "echo"),
    (CHAT, {"messages": [7]}, "messages"),
    (CHAT, {"messages": message("tool")}, "messages.0.role"),
    (CHAT, {"messages": message(content="x", tool_calls=[1])}, "messages.0.tool_calls"),
    (CHAT, {"messages": message()}, "messages.0.content"),
    (CHAT, {"messages": message(content=[{"type": "image_url"}])}, "messages.0.content"),
    (CHAT, {"messages": message(content=" \n")}, "messages"),
    (CHAT, {"messages": message("system", content="x")}, "messages"),
    (TEXT, {"prompt": "<|mask|>", "parse_special": True}, "prompt"),
    (TEXT, {"prompt": "\udfff"}, None),
    (TEXT, {"prompt": ["a", [300]]}, "prompt"),
    (TEXT, {"prompt": ["a"] * 43, "n": 3}, "n"),
    (TEXT, {"logit_bias": {"260": 1}}, "logit_bias"),
    (CHAT, {"presence_penalty": 1, "method": "block_diffusion"}, "method"),
    (RESPONSES, {"reasoning": {"effort": "low"}}, "reasoning"),
    (RESPONSES, {"previous_response_id": "x"}, "previous_response_id"),
    (RESPONSES, {"background": True}, "background"),
    (RESPONSES, {"text": {"format": {"type": "json_object"}}}, "text.format"),
    (RESPONSES, {"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.type"),
    (RESPONSES, {"input": [{"type": "reasoning", "summary": []}]}, "input"),
    (RESPONSES, {"input": [*HELLO, *message("assistant", content="Hi")]}, "input"),
    (RESPONSES, {"metadata": {"of": 7}}, "metadata.of"),
]
FOREIGN = {
    "guided_json": {"type": "object"}, "tools": [{"type": "function"}], "tool_choice": "required",
    "use_beam_search": True, "typical_p": 0.5, "max_new_tokens": 8, "reasoning_effort": "low",
    "temprature": 1, "verbosity": "low", "x" * 5000: 1, "a b\n": 1,
}  # fmt: skip
"""Fields of other servers that would change the answer, and misspelled ones."""
ROWS = [
    *((path, {name: value}, name) for path, bad in BAD.items() for name, value in bad.items()),
    *MORE,
    *((path, {name: value}, name) for path in GOOD for name, value in FOREIGN.items()),
]


def test_every_field_has_a_bad_value() -> None:
    for path, body in ((CHAT, ChatBody), (TEXT, TextBody), (RESPONSES, ResponsesBody)):
        assert BAD[path].keys() == body.model_fields.keys()


def test_a_wrong_field_is_named_in_a_sentence(place: Place) -> None:
    for path, changes, field in ROWS:
        body = json.dumps({**GOOD[path], **changes})
        answer = place.http.post(path, content=body, headers=HEADERS)
        error = answer.json()["error"]
        assert (answer.status_code, error["message"][-1]) == (400, "."), (path, changes)
        named = field and (field if len(field) <= 100 else f"{field[:100]}...")
        assert error["param"] == named, (path, changes)


NEUTRAL: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"tool_choice": "auto", "guided_json": None, "top_k": -1, "min_tokens": 0}),
    (CHAT, {"mirostat": 0, "length_penalty": 1.0, "typical_p": 1.0, "skip_special_tokens": True}),
    (TEXT, {"prompt": [79.0, 110.0], "max_tokens": 6.0, "n": 2.0, "seed": 7.0, "block_size": 4.0}),
    (TEXT, {"stop_token_ids": [10.0], "logit_bias": {"32": -5.0}, "temperature": 1}),
    (RESPONSES, {"store": True, "tools": [], "tool_choice": "auto", "truncation": "auto"}),
    (RESPONSES, {"text": {"format": {"type": "text"}, "verbosity": "medium"}, "background": False}),
    (RESPONSES, {"reasoning": {"effort": None}, "include": ["reasoning.encrypted_content"]}),
]
"""Defaults of other servers, and whole numbers that are written as floats."""


def test_what_changes_nothing_is_accepted(place: Place) -> None:
    harmless = {**dict.fromkeys(HARMLESS, "x"), "stream_options": {"include_usage": True}}
    for path, changes in [*NEUTRAL, *((path, {**harmless, "metadata": {}}) for path in GOOD)]:
        answer = place.http.post(path, json={**GOOD[path], **changes}, headers=HEADERS)
        assert answer.status_code == 200, (changes, answer.text)
