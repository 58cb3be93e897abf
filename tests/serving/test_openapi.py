"""What may be posted is described as it is checked: one model each, settings from their table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openai")

from fastapi.openapi.models import OpenAPI

from mars_runtime.serving.app import BODIES
from mars_runtime.serving.requests import NO_TOOLS, SERVED
from mars_runtime.settings import RECOMMENDED, SETTINGS, STEERED
from tests.serving.scripted_server import NAME, Oracle, Place, serving

HELLO = [{"role": "user", "content": "Hello"}]
CHAT, TEXT, RUN = "/v1/chat/completions", "/v1/completions", "/v1/runs"
RESPONSES = "/v1/responses"
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"model": NAME, "messages": HELLO},
    TEXT: {"model": NAME, "prompt": "Once"},
    RESPONSES: {"model": NAME, "input": "Once"},
    RUN: {"model": NAME, "lanes": [{"prompt_ids": [104]}]},
}
TURN = {"role": "user"}
LIMIT_REFUSAL = "must be a whole number from 1 to 2147483647, or -1 for as many as fit."
BIAS_REFUSAL = "The logit bias must map at most 300 token ids to numbers from -100 to 100."
PROMPT_REFUSAL = "prompt must be a text, a list of token ids, or a list of either."


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server that would answer at once."""
    folder = tmp_path_factory.mktemp("described")
    with serving(folder, Oracle(forward_seconds=0.0), key="secret") as found:
        yield found


def test_the_document_is_valid_and_names_every_body(place: Place) -> None:
    told = place.http.get("/openapi.json").json()
    OpenAPI.model_validate(told)
    for path, body in BODIES.items():
        (operation,) = told["paths"][path].values()
        taken = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert taken.rpartition("/")[2] == body.__name__
    text = json.dumps(told)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in told["components"]["schemas"]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("ChatBody", SERVED),
        ("TextBody", SERVED),
        ("ResponsesBody", SERVED),
        ("LaneBody", (*SERVED, "max_new_tokens")),
        ("SteerBody", STEERED),
    ],
)
def test_a_setting_is_described_as_its_table_has_it(place: Place, body: str, names: Any) -> None:
    fields = place.http.get("/openapi.json").json()["components"]["schemas"][body]["properties"]
    assert set(fields) & set(SETTINGS) - {"max_new_tokens"} == set(names) - {"max_new_tokens"}
    for name in names:
        line, told = SETTINGS[name], fields[name]
        assert told["description"] == line.says
        text = json.dumps(told)
        assert all(f'"{choice}"' in text for choice in line.choices)
        is_seed = name == "seed"  # int64, as OpenAI's
        low, high = (-(2**63), 2**63 - 1) if is_seed else (line.low, line.high)
        assert low is None or f'"minimum": {low}' in text
        assert high is None or f'"maximum": {high}' in text
        default = None if body == "SteerBody" else getattr(RECOMMENDED, name)
        assert told["default"] == json.loads(json.dumps(default))


def test_the_page_tells_every_field_and_loads_nothing(place: Place) -> None:
    answer = place.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", answer.text)
    for name in (*SERVED, "messages", "prompt", "top_logprobs", "input", "lanes"):
        assert f"<code>{name}</code>" in answer.text
    for path in BODIES:
        assert f"POST {path}</code>" in answer.text


@pytest.mark.parametrize(
    ("path", "changes", "field", "sentence"),
    [
        (CHAT, {"model": None}, "model", "model must be a text."),
        (CHAT, {"model": 7}, "model", "model must be a text."),
        (CHAT, {"stream": 1}, "stream", "stream must be true or false."),
        (CHAT, {"stream_options": []}, "stream_options", "stream_options must be an object."),
        (
            CHAT,
            {"stream_options": {"include_usage": "yes"}},
            "stream_options.include_usage",
            "stream_options.include_usage must be true or false.",
        ),
        *[
            (CHAT, {name: value}, name, f"{name} {LIMIT_REFUSAL}")
            for name in ("max_tokens", "max_completion_tokens")
            for value in (0, 2**31, 2.0, True, "9")
        ],
        (
            CHAT,
            {"logprobs": True, "top_logprobs": 4},
            "top_logprobs",
            "top_logprobs must be a whole number from 0 to 3.",
        ),
        (CHAT, {"top_logprobs": 1}, "top_logprobs", "top_logprobs needs logprobs to be true."),
        (CHAT, {"messages": []}, "messages", "messages must be a list of 1 to 1000 values."),
        (CHAT, {"messages": None}, "messages", "messages must be a list of 1 to 1000 values."),
        (
            CHAT,
            {"messages": [7]},
            "messages",
            "messages must hold objects with role and content.",
        ),
        (
            CHAT,
            {"messages": [{**TURN, "role": "tool"}]},
            "messages.0.role",
            NO_TOOLS,
        ),
        (
            CHAT,
            {"messages": [{**TURN, "role": "function"}]},
            "messages.0.role",
            NO_TOOLS,
        ),
        (
            CHAT,
            {"messages": [{**TURN, "role": "robot"}]},
            "messages.0.role",
            "messages.0.role must be one of system, developer, user, assistant.",
        ),
        (
            CHAT,
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}, *HELLO]},
            "messages.0.tool_calls",
            NO_TOOLS,
        ),
        (
            CHAT,
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}, *HELLO]},
            "messages.0.function_call",
            NO_TOOLS,
        ),
        *[
            (path, {name: [{"type": "function"}]}, name, NO_TOOLS)
            for name in ("tools", "functions")
            for path in (CHAT, TEXT)
        ],
        (CHAT, {"messages": [TURN]}, "messages.0.content", "messages.0.content must be a text."),
        (
            CHAT,
            {"messages": [{**TURN, "content": [{"type": "image_url"}]}]},
            "messages.0.content",
            "messages.0.content must be a text, or parts of the type text.",
        ),
        (
            CHAT,
            {"messages": [{**HELLO[0], "tool_calls": [1]}]},
            "messages.0.tool_calls",
            NO_TOOLS,
        ),
        (
            CHAT,
            {"messages": [{"role": "system", "content": "x"}]},
            "messages",
            "messages must end with one of the role user or assistant.",
        ),
        (
            CHAT,
            {"continue_final_message": True},
            "continue_final_message",
            "continue_final_message must be false after a last message of the role user.",
        ),
        (
            CHAT,
            {
                "messages": [{"role": "assistant", "content": "x"}],
                "continue_final_message": False,
            },
            "continue_final_message",
            "continue_final_message must be true after a last message of the role assistant.",
        ),
        (CHAT, {"stop": 7}, "stop", "stop must be a list of 1 to 64 values."),
        (CHAT, {"stop": ["x"] * 65}, "stop", "stop must be a list of 1 to 64 values."),
        (CHAT, {"stop": [""]}, "stop", "stop must be texts of 1 to 200 characters."),
        (CHAT, {"stop": ["\ud800"]}, "stop", "Remove the characters that are no valid text."),
        *[
            (path, {"n": number}, "n", "n must be a whole number from 1 to 128.")
            for number in (0, 129, True, "2", 1.5)
            for path in (CHAT, TEXT)
        ],
        (CHAT, {"n": 2, "best_of": 3}, "best_of", "best_of must equal n, got 3 and 2."),
        (
            CHAT,
            {"echo": True},
            "echo",
            "echo is only supported for text completions: leave it out.",
        ),
        *[
            (path, {name: 2.5}, name, f"The {name[:-8]} penalty must be a number from -2 to 2.")
            for name in ("presence_penalty", "frequency_penalty")
            for path in (CHAT, TEXT)
        ],
        *[
            (CHAT, {"logit_bias": bias}, "logit_bias", BIAS_REFUSAL)
            for bias in ({"1": 101}, {"x": 1}, {"-1": 1}, {"1": "2"}, {"1": [2]}, [1], "x")
        ],
        (
            TEXT,
            {"logit_bias": {"260": 1}},
            "logit_bias",
            "logit_bias must name tokens below 260, got 260.",
        ),
        (
            CHAT,
            {"method": "block_diffusion", "presence_penalty": 1},
            "method",
            "The presence penalty does not work with block diffusion: leave it out.",
        ),
        (
            CHAT,
            {"method": "block_diffusion", "min_tokens": 1},
            "method",
            "The minimum number of tokens does not work with block diffusion: leave it out.",
        ),
        (CHAT, {"tau": 2}, "tau", "The threshold τ must be a number from 0 to 1."),
        (CHAT, {"method": "jacobi"}, "method", "Jacobi needs a number as B."),
        (
            CHAT,
            {"logprobs": True, "metric": "margin"},
            "logprobs",
            "logprobs can only be told with the metric probability.",
        ),
        *[
            (TEXT, {"prompt": prompt}, "prompt", PROMPT_REFUSAL)
            for prompt in (None, [], [True], [[]], ["a", [True]], ["a", 1], [["a"]])
        ],
        (
            TEXT,
            {"prompt": ["a", "\udfff"]},
            "prompt",
            "Remove the characters that are no valid text.",
        ),
        (
            TEXT,
            {"prompt": ["a", [300]]},
            "prompt",
            "The prompt holds tokens that are no text of this model.",
        ),
        (
            TEXT,
            {"prompt": ["a"] * 43, "n": 3},
            "n",
            "n times the number of prompts must be at most 128.",
        ),
        (
            TEXT,
            {"echo": True, "logprobs": 0},
            "echo",
            "echo does not work with logprobs: leave one of them out.",
        ),
        (TEXT, {"prompt": "\udfff"}, "prompt", "Remove the characters that are no valid text."),
        (TEXT, {"logprobs": 4}, "logprobs", "logprobs must be a whole number from 0 to 3."),
        (RUN, {"lanes": None}, "lanes", "lanes must be a list of 1 to 8 values."),
        (RUN, {"is_alone": 1}, "is_alone", "is_alone must be true or false."),
        (
            RUN,
            {"lanes": [{"prompt_ids": [104], "seconds": 0}]},
            "lanes.0.seconds",
            "lanes.0.seconds must be a whole number from 1 to 86400.",
        ),
    ],
)
def test_a_field_that_is_wrong_is_named_in_one_sentence(
    place: Place, path: str, changes: dict[str, Any], field: str, sentence: str
) -> None:
    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    body = json.dumps({**GOOD[path], **changes})
    refused = place.http.post(path, content=body, headers=headers)
    told = refused.json()["error"]
    assert (refused.status_code, told["message"], told["param"]) == (400, sentence, field)
