"""What may be posted is described as it is validated, and a wrong field is named in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

pytest.importorskip("openai")

from fastapi.openapi.models import OpenAPI

from mars_runtime.serving.app import BODIES
from mars_runtime.serving.requests import (
    BIASED_TOKENS,
    ECHO_LOGPROBS,
    FINAL,
    FOREIGN_IDS,
    LAST,
    NEEDS_PROBABILITY,
    NO_ECHO,
    NO_TEXT,
    NO_TOOLS,
    SERVED,
    UNSUPPORTED,
)
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
    for path, body in BODIES.items():
        (operation,) = document["paths"][path].values()
        taken = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert taken.rpartition("/")[2] == body.__name__
    for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(document)):
        assert name in document["components"]["schemas"]


@pytest.mark.parametrize("body", ["ChatBody", "TextBody", "ResponsesBody"])
def test_a_setting_is_described_as_its_table_has_it(document: Any, body: str) -> None:
    fields = document["components"]["schemas"][body]["properties"]
    assert set(fields) & set(SETTINGS) - {"max_new_tokens"} == set(SERVED)
    for name in SERVED:
        line, actual = SETTINGS[name], fields[name]
        assert actual["description"] == line.says
        text = json.dumps(actual)
        assert all(f'"{choice}"' in text for choice in line.choices)
        is_seed = name == "seed"  # int64, as OpenAI's
        low, high = (-(2**63), 2**63 - 1) if is_seed else (line.low, line.high)
        assert low is None or f'"minimum": {low}' in text
        assert high is None or f'"maximum": {high}' in text
        assert actual["default"] == json.loads(json.dumps(getattr(RECOMMENDED, name)))


def test_the_page_describes_every_field_and_loads_nothing(place: Place) -> None:
    answer = place.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", answer.text)
    for name in (*SERVED, "messages", "prompt", "top_logprobs", "input"):
        assert f"<code>{name}</code>" in answer.text
    for path in BODIES:
        assert f"POST {path}</code>" in answer.text


Case = tuple[str, dict[str, Any], str, str]


def wrong(path: str, name: str, sentence: str, *values: Any, field: str = "", **more: Any) -> Any:
    """Return a case for each value of the field. Its sentence begins with the field's name, unless
    ``field`` names the field that is refused."""
    refused = field or sentence.split()[0]
    return [(path, {name: value, **more}, refused, sentence) for value in values]


def message(role: str = "user", **more: Any) -> list[dict[str, Any]]:
    """Return a conversation of one message."""
    return [{"role": role, **more}]


NEITHER = "The {} does not work with block diffusion: leave it out."
CONTENT = "messages.0.content must be a string"
ROLES = "messages.0.role must be one of system, developer, user, assistant."
LIMIT = " must be a whole number from 1 to 2147483647, or -1 for as many as fit."
TOP = "must be a whole number from 0 to 3."
BIAS = "The logit bias must map at most 300 token ids to numbers from -100 to 100."
BIASES = ({"1": 101}, {"x": 1}, {"-1": 1}, {"1": "2"}, {"1": [2]}, [1], "x")
PROMPT = "prompt must be a string, a list of token ids, or a list of either."
PROMPTS = (None, [], [True], [[]], ["a", [True]], ["a", 1], [["a"]])
INCLUDED = "stream_options.include_usage must be true or false."
DIFFUSION: dict[str, Any] = {"method": "block_diffusion", "field": "method"}

WRONG: list[Case] = [
    *wrong(CHAT, "model", "model must be a string.", None, 7),
    *wrong(CHAT, "stream", "stream must be true or false.", 1),
    *wrong(CHAT, "stream_options", "stream_options must be an object.", []),
    *wrong(CHAT, "stream_options", INCLUDED, {"include_usage": "yes"}),
    *wrong(CHAT, "max_tokens", f"max_tokens{LIMIT}", 0, 2**31, 2.0, True, "9"),
    *wrong(CHAT, "max_completion_tokens", f"max_completion_tokens{LIMIT}", 0, 2**31, 2.0, True),
    *wrong(CHAT, "top_logprobs", f"top_logprobs {TOP}", 4, logprobs=True),
    *wrong(CHAT, "top_logprobs", "top_logprobs requires logprobs to be true.", 1),
    *wrong(TEXT, "logprobs", f"logprobs {TOP}", 4),
    *wrong(
        *(CHAT, "logprobs", NEEDS_PROBABILITY, True),
        metric="margin",
    ),
    *wrong(TEXT, "echo", ECHO_LOGPROBS, True, logprobs=0),
    *wrong(CHAT, "echo", f"echo {NO_ECHO}.", True),
    # Messages.
    *wrong(CHAT, "messages", "messages must be a list of 1 to 1000 values.", [], None),
    *wrong(CHAT, "messages", "messages must be a list of objects with role and content.", [7]),
    *wrong(CHAT, "messages", ROLES, message("robot")),
    *(
        case
        for role in ("tool", "function")
        for case in wrong(CHAT, "messages", NO_TOOLS, message(role), field="messages.0.role")
    ),
    *(
        case
        for role, name in product(("assistant", "user"), ("tool_calls", "function_call"))
        for case in wrong(
            *(CHAT, "messages", NO_TOOLS, [*message(role, content="x", **{name: [1]}), *HELLO]),
            field=f"messages.0.{name}",
        )
    ),
    *wrong(CHAT, "messages", f"{CONTENT}.", message()),
    *wrong(
        *(CHAT, "messages", f"{CONTENT}, or a list of parts of type text."),
        message(content=[{"type": "image_url"}]),
    ),
    *wrong(CHAT, "messages", LAST, message("system", content="x"), field="messages"),
    *wrong(CHAT, "continue_final_message", FINAL.format("false", "user"), True),
    *wrong(
        *(CHAT, "continue_final_message", FINAL.format("true", "assistant"), False),
        messages=message("assistant", content="x"),
    ),
    # Prompts.
    *wrong(TEXT, "prompt", PROMPT, *PROMPTS),
    *wrong(TEXT, "prompt", NO_TEXT, "\udfff", ["a", "\udfff"], field="prompt"),
    *wrong(
        *(TEXT, "prompt", FOREIGN_IDS, ["a", [300]]),
        field="prompt",
    ),
    *wrong(
        TEXT,
        "prompt",
        "n times the number of prompts must be at most 128, got 3 times 43.",
        ["a"] * 43,
        n=3,
    ),
    # Stops and settings.
    *wrong(CHAT, "stop", "stop must be a list of 1 to 64 values.", 7, ["x"] * 65),
    *wrong(CHAT, "stop", "stop must be texts of 1 to 200 characters.", [""]),
    *wrong(CHAT, "stop", NO_TEXT, ["\ud800"], field="stop"),
    *wrong(CHAT, "best_of", "best_of must equal n, got 3 and 2.", 3, n=2),
    *(
        case
        for path in (CHAT, TEXT)
        for case in (
            *wrong(path, "n", "n must be a whole number from 1 to 128.", 0, 129, True, "2", 1.5),
            *wrong(path, "tools", NO_TOOLS, [{"type": "function"}], field="tools"),
            *wrong(path, "functions", NO_TOOLS, [{"name": "f"}], field="functions"),
            *wrong(path, "logit_bias", BIAS, *BIASES, field="logit_bias"),
            *(
                (path, {f"{name}_penalty": 2.5}, f"{name}_penalty", sentence)
                for name in ("presence", "frequency")
                for sentence in (f"The {name} penalty must be a number from -2 to 2.",)
            ),
        )
    ),
    *wrong(TEXT, "logit_bias", BIASED_TOKENS.format(260, 260), {"260": 1}),
    *wrong(CHAT, "presence_penalty", NEITHER.format("presence penalty"), 1, **DIFFUSION),
    *wrong(CHAT, "min_tokens", NEITHER.format("minimum number of tokens"), 1, **DIFFUSION),
    *wrong(CHAT, "tau", "The threshold τ must be a number from 0 to 1.", 2, field="tau"),
    *wrong(CHAT, "method", "Jacobi needs a number as B.", "jacobi", field="method"),
]


def refusal(place: Place, path: str, changes: Any) -> tuple[int, str, str]:
    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    body = json.dumps({**GOOD[path], **changes})
    answer = place.http.post(path, content=body, headers=headers)
    error = answer.json()["error"]
    return answer.status_code, error["message"], error["param"]


@pytest.mark.parametrize(("path", "changes", "field", "sentence"), WRONG)
def test_a_field_that_is_wrong_is_named_in_one_sentence(
    place: Place, path: str, changes: dict[str, Any], field: str, sentence: str
) -> None:
    assert refusal(place, path, changes) == (400, sentence, field)


FOREIGN = {
    "guided_json": {"type": "object"}, "guided_regex": "a+", "guided_choice": ["yes", "no"],
    "guided_grammar": "root ::= x", "structured_outputs": {"choice": ["yes"]},
    "grammar": "root ::= x", "json_schema": {"type": "object"}, "regex": "a+", "ebnf": "root ::= x",
    "tool_choice": "required", "function_call": {"name": "f"}, "allowed_token_ids": [1],
    "bad_words": ["no"], "use_beam_search": True, "chat_template": "{{ messages }}",
    "typical_p": 0.5, "mirostat": 2,
}  # fmt: skip
"""Fields of other servers that would change the answer."""


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("path", [CHAT, TEXT, RESPONSES])
def test_what_would_change_the_answer_is_refused_by_name(
    place: Place, name: str, path: str
) -> None:
    sentence = UNSUPPORTED.format(name)
    assert refusal(place, path, {name: FOREIGN[name]}) == (400, sentence, name)


@pytest.mark.parametrize("content", ["", " \n"])
@pytest.mark.parametrize(("path", "field"), [(CHAT, "messages"), (RESPONSES, "input")])
def test_an_empty_message_is_refused_by_the_name_of_its_field(
    place: Place, path: str, field: str, content: str
) -> None:
    status, _, param = refusal(place, path, {field: message(content=content)})
    assert (status, param) == (400, field)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("top_k", (-2, 2**31, 1.5, "4", True)),
        ("min_p", (-0.1, 1.5, "0", True)),
        ("min_tokens", (-1, 4097, 1.5, "4", False)),
        ("ignore_eos", (0, 1, "true", [])),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT, RESPONSES])
def test_a_wrong_setting_is_refused_on_every_route(
    place: Place, path: str, name: str, values: tuple[Any]
) -> None:
    for value in values:
        status, sentence, param = refusal(place, path, {"method": "ar", name: value})
        assert (status, param) == (400, name)
        assert SETTINGS[name].refusal in sentence
