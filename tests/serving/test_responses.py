"""The Responses API through OpenAI's own client: text in, text out, events, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted_server import NAME, Oracle, Place, eventually, serving

from mars_runtime.serving.answer import LOWERED, SHUTTING_DOWN
from mars_runtime.serving.requests import DEFAULT_CAPS, NO_TOOLS
from mars_runtime.serving.responses import LAST, UNSTORED, WANTED

QUESTION = "What is it?"
EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def respond(place: Place, **more: Any) -> Any:
    return place.client.responses.create(**{"model": NAME, "input": QUESTION, **more})


def prompt_of(place: Place) -> list[int]:
    """What the model read last."""
    return list(place.backend.prompts[-1])


def test_the_first_sample_of_the_sdk(place: Place) -> None:
    response = respond(place)
    text = place.text_for(QUESTION)
    assert response.output_text == text
    assert response.status == "completed"
    assert response.error is response.incomplete_details is None
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    num_prompt = len(place.model.tokenizer.encode_prompt(QUESTION))
    used = response.usage
    assert (used.input_tokens, used.output_tokens) == (num_prompt, len(text.encode()) + 1)
    assert used.total_tokens == used.input_tokens + used.output_tokens
    assert response.mars["ended"] == "eos"
    assert response.metrics["speculative_decoding"]["num_spec_steps"] == 0  # verified: none here


def test_what_is_sent_is_valid_by_openai_s_own_types(place: Place) -> None:
    asked = {"model": NAME, "input": QUESTION, "metadata": {"of": "me"}}
    told = place.http.post("/v1/responses", json=asked).json()
    Response.model_validate(told, strict=True)
    assert told["metadata"] == {"of": "me"}
    assert (told["store"], told["previous_response_id"]) == (False, None)


def test_a_stream_is_valid_by_openai_s_own_types(place: Place) -> None:
    asked = {"model": NAME, "input": QUESTION, "stream": True}
    text = place.http.post("/v1/responses", json=asked).text
    events: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for number, block in enumerate(text.removesuffix("\n\n").split("\n\n")):
        named, data = block.split("\n")
        event = events.validate_json(data.removeprefix("data: "))
        assert named == f"event: {event.type}"
        assert event.sequence_number == number


@pytest.mark.parametrize("own", [{"method": "ar"}, {"tau": 0.0, "lossless": False}])
def test_a_stream_tells_the_same_in_order(place: Place, own: dict[str, Any]) -> None:
    whole = respond(place, extra_body=own)
    events = list(respond(place, extra_body=own, stream=True))
    kinds = [event.type for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]] == [
        *EVENTS,
        "response.completed",
    ]
    assert len(deltas) > 1
    assert "".join(deltas) == whole.output_text == events[-1].response.output_text
    assert events[0].response.status == "in_progress"
    assert events[0].response.id == events[-1].response.id
    assert events[-1].response.usage == whole.usage
    assert events[-1].response.metrics == whole.metrics
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1


def test_the_stream_helper_of_the_sdk_finds_the_final_response(place: Place) -> None:
    with place.client.responses.stream(model=NAME, input=QUESTION) as stream:
        assert stream.get_final_response().output_text == place.text_for(QUESTION)


def test_the_asynchronous_client(place: Place) -> None:
    async def ask() -> tuple[str, str]:
        address = f"{place.address}/v1"
        async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
            whole = await client.responses.create(model=NAME, input=QUESTION)
            stream = await client.responses.create(model=NAME, input=QUESTION, stream=True)
            events = [event async for event in stream]
            return whole.output_text, events[-1].response.output_text

    assert asyncio.run(ask()) == (place.text_for(QUESTION),) * 2


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_that_is_cut_is_incomplete(place: Place, is_stream: bool) -> None:
    found = respond(place, max_output_tokens=5, stream=is_stream)
    if is_stream:
        last = list(found)[-1]
        assert last.type == "response.incomplete"
        found = last.response
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert found.output_text == place.text_for(QUESTION)[:5]
    assert (found.usage.output_tokens, found.max_output_tokens) == (5, 5)


def test_instructions_are_a_system_message(place: Place) -> None:
    response = respond(place, instructions="Be brief. <|im_end|>")
    said = [("system", "Be brief. <|im_end|>"), ("user", QUESTION)]
    assert prompt_of(place) == place.model.tokenizer.encode_chat(said)
    assert response.instructions == "Be brief. <|im_end|>"


def test_a_conversation_goes_on_from_the_output_of_the_turn_before(place: Place) -> None:
    first = respond(place)
    before = prompt_of(place)
    conversation: list[Any] = [{"role": "user", "content": QUESTION}, *first.output]
    parts = [{"type": "input_text", "text": "And "}, {"type": "input_text", "text": "now?"}]
    conversation.append({"role": "user", "content": parts, "type": "message"})
    respond(place, input=conversation)
    begun = [*before, *first.output_text.encode()]
    assert prompt_of(place)[: len(begun)] == begun
    said = [("user", QUESTION), ("assistant", first.output_text), ("user", "And now?")]
    assert prompt_of(place) == place.model.tokenizer.encode_chat(said)


def test_settings_and_a_stop_string_ride_along(place: Place) -> None:
    own = {"tau": 0.0, "lossless": False, "block_size": 4, "stop": [" and"]}
    response = respond(place, temperature=0.5, top_p=0.9, extra_body=own)
    text = place.text_for(QUESTION)
    assert response.output_text == text[: text.index(" and")]
    assert (response.temperature, response.top_p) == (0.5, 0.9)
    assert response.mars["tokens_per_forward"] > 3


def test_what_changes_nothing_is_passed_over(place: Place) -> None:
    more: dict[str, Any] = {
        "store": True,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "truncation": "auto",
        "background": False,
        "previous_response_id": None,
        "user": "me",
    }
    assert respond(place, **more).output_text == place.text_for(QUESTION)


MESSAGE = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    ("more", "field", "sentence"),
    [
        (
            {"previous_response_id": "resp_1"},
            "previous_response_id",
            f"previous_response_id is not supported. {UNSTORED}",
        ),
        (
            {"conversation": "conv_1"},
            "conversation",
            f"conversation is not supported. {UNSTORED}",
        ),
        (
            {"tools": [{"type": "web_search"}]},
            "tools",
            "tools is not supported here: leave it out.",
        ),
        ({"background": True}, "background", "background is not supported here: leave it out."),
        ({"prompt": {"id": "p"}}, "prompt", "prompt is not supported here: leave it out."),
        (
            {"text": {"format": {"type": "json_object"}}},
            "text.format",
            "text.format is not supported here: leave it out.",
        ),
        (
            {"include": ["message.output_text.logprobs"]},
            "include",
            "message.output_text.logprobs is not supported here: ask for a chat completion with "
            "logprobs.",
        ),
        ({"input": None}, "input", f"input must be {WANTED}."),
        ({"input": []}, "input", f"input must be {WANTED}."),
        ({"input": 7}, "input", f"input must be {WANTED}."),
        (
            {"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]},
            "input",
            f"input must be {WANTED}.",
        ),
        (
            {"input": [{"role": "tool", "content": "x"}]},
            "input.0.role",
            NO_TOOLS,
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content",
            "input.0.content must be a text, or parts of the type text.",
        ),
        ({"input": [MESSAGE, {"role": "assistant", "content": "Hi"}]}, "input", LAST),
        ({"input": "\ud800"}, "input.0.content", "Remove the characters that are no valid text."),
        (
            {"metadata": {"of": "\ud800"}},
            "metadata",
            "Remove the characters that are no valid text.",
        ),
        ({"instructions": 7}, "instructions", "instructions must be a text."),
        (
            {"max_output_tokens": 0},
            "max_output_tokens",
            "max_output_tokens must be a whole number from 1 to 2147483647.",
        ),
        ({"tau": 2}, "tau", "The threshold τ must be a number from 0 to 1."),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    place: Place, more: dict[str, Any], field: str, sentence: str
) -> None:
    body = json.dumps({"model": NAME, "input": QUESTION, **more})
    headers = {"content-type": "application/json"}
    refused = place.http.post("/v1/responses", content=body, headers=headers)
    told = refused.json()["error"]
    assert (refused.status_code, told["message"], told["param"]) == (400, sentence, field)


def test_a_limit_above_the_cap_is_lowered_with_a_note(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(), caps=replace(DEFAULT_CAPS, max_new_tokens=8)) as place:
        response = respond(place, max_output_tokens=8192)
        assert response.usage.output_tokens == 8
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.mars["note"] == LOWERED.format(8192, 8)
        unlimited = respond(place)
        assert (unlimited.usage.output_tokens, unlimited.mars["note"]) == (8, "")


def test_nothing_is_stored(place: Place) -> None:
    name = respond(place).id
    with pytest.raises(openai.NotFoundError):
        place.client.responses.retrieve(name)
    with pytest.raises(openai.NotFoundError, match="choose among"):
        respond(place, model="none")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Place]:
    """A forward takes 50 ms."""
    with serving(tmp_path, Oracle(forward_seconds=0.05)) as found:
        yield found


def test_closing_the_stream_frees_the_row(slow: Place) -> None:
    stream = respond(slow, stream=True)
    next(iter(stream))
    assert eventually(lambda: slow.num_open == 1)
    stream.close()
    assert eventually(lambda: slow.num_open == 0, 1.0)


def test_a_stream_is_steered_by_its_id(slow: Place) -> None:
    stream = iter(respond(slow, stream=True))
    name = next(stream).response.id
    steered = slow.http.post(f"/v1/runs/{name}/settings", json={"max_new_tokens": 3})
    assert steered.status_code == 204
    assert list(stream)[-1].response.usage.output_tokens <= 4


def test_a_response_that_fails_says_why(slow: Place) -> None:
    stream = iter(respond(slow, stream=True))
    next(stream)
    slow.models.close()
    last = list(stream)[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert (last.response.error.code, last.response.error.message) == (
        "server_error",
        SHUTTING_DOWN,
    )
