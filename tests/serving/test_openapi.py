"""What may be posted is described as it is validated, and a wrong field is named in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openai")

from fastapi.openapi.models import OpenAPI

from mars_runtime.serving.requests import HARMLESS, RESERVED, SERVED
from mars_runtime.settings import RECOMMENDED, SETTINGS
from tests.serving.scripted_server import NAME, Oracle, Place, serving

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
    """A server that would answer at once."""
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
    """Return a conversation of one message."""
    return [{"role": role, **more}]


# Route, what is changed of a good request, and the field that is named.
WRONG: list[tuple[str, dict[str, Any], str | None]] = [
    (CHAT, {"model": None}, "model"),
    (CHAT, {"stream": 1}, "stream"),
    (CHAT, {"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    (CHAT, {"stream_options": {"chunk": 5}}, "stream_options.chunk"),
    (CHAT, {"max_tokens": 2**31}, "max_tokens"),
    (CHAT, {"max_tokens": 6.5}, "max_tokens"),
    (CHAT, {"max_completion_tokens": True}, "max_completion_tokens"),
    (CHAT, {"top_logprobs": 4, "logprobs": True}, "top_logprobs"),
    (CHAT, {"top_logprobs": 1}, "top_logprobs"),
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
    (CHAT, {"continue_final_message": True}, "continue_final_message"),
    (CHAT, {"chat_template_kwargs": {next(iter(RESERVED)): 1}}, "chat_template_kwargs"),
    (TEXT, {"prompt": "<|mask|>", "parse_special": True}, "prompt"),
    (TEXT, {"prompt": ["a", 1]}, "prompt"),
    (TEXT, {"prompt": "\udfff"}, None),
    (TEXT, {"prompt": ["a", [300]]}, "prompt"),
    (TEXT, {"prompt": ["a"] * 43, "n": 3}, "n"),
    (CHAT, {"stop": ["x"] * 65}, "stop"),
    (CHAT, {"best_of": 3, "n": 2}, "best_of"),
    (TEXT, {"tools": [{"type": "function"}]}, "tools"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias"),
    (TEXT, {"logit_bias": {"260": 1}}, "logit_bias"),
    (CHAT, {"presence_penalty": 1, "method": "block_diffusion"}, "method"),
    (RESPONSES, {"input": message(content=" \n")}, "input"),
    (RESPONSES, {"reasoning": {"effort": "low"}}, "reasoning"),
    *[(path, {"tau": 2}, "tau") for path in (CHAT, TEXT, RESPONSES)],
]


def refusal(place: Place, path: str, changes: Any) -> tuple[int, str, str]:
    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    body = json.dumps({**GOOD[path], **changes})
    answer = place.http.post(path, content=body, headers=headers)
    error = answer.json()["error"]
    return answer.status_code, error["message"], error["param"]


@pytest.mark.parametrize(("path", "changes", "field"), WRONG)
def test_a_field_that_is_wrong_is_named(
    place: Place, path: str, changes: dict[str, Any], field: str | None
) -> None:
    status, sentence, param = refusal(place, path, changes)
    assert (status, param) == (400, field)
    assert sentence.endswith(".")


FOREIGN = {
    "guided_json": {"type": "object"}, "structured_outputs": {"choice": ["yes"]},
    "tool_choice": "required", "use_beam_search": True, "typical_p": 0.5, "n_predict": 8,
    "max_new_tokens": 8, "reasoning_effort": "low", "temprature": 1, "verbosity": "low",
    "x" * 5000: 1, "a b\n": 1,
}  # fmt: skip
"""Fields of other servers that would change the answer, and misspelled ones."""


@pytest.mark.parametrize("path", [CHAT, TEXT, RESPONSES])
def test_what_would_change_the_answer_is_refused_by_name(place: Place, path: str) -> None:
    for name, value in FOREIGN.items():
        status, sentence, field = refusal(place, path, {name: value})
        assert status == 400, sentence
        assert field in (name, f"{name[:100]}...")


def test_harmless_fields_are_accepted_with_any_value(place: Place) -> None:
    headers = {"authorization": "Bearer secret"}
    for path, good in GOOD.items():
        names = set(HARMLESS) - ({"metadata"} if path == RESPONSES else set())
        body = {**good, **dict.fromkeys(names, "x"), "stream_options": {"include_usage": True}}
        assert place.http.post(path, json=body, headers=headers).status_code == 200
