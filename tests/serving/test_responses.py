"""The Responses API through OpenAI's own client: text in, text out, events, and what is refused."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted_server import NAME, QUESTION, Place, respond

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


def prompt_of(place: Place) -> list[int]:
    """Return what the model read last."""
    return list(place.backend.prompts[-1])


def test_a_response_is_valid_by_openai_s_own_types(place: Place) -> None:
    response, text = respond(place), place.text_for()
    assert (response.output_text, response.status) == (text, "completed")
    assert response.error is response.incomplete_details is None
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    used = response.usage
    assert (used.input_tokens, used.output_tokens) == (len(place.ids()), len(text.encode()) + 1)
    assert used.total_tokens == used.input_tokens + used.output_tokens
    assert response.mars["ended"] == "eos"
    assert response.metrics["speculative_decoding"]["num_spec_steps"] == 0  # verified: none here
    body = {"model": NAME, "input": QUESTION, "metadata": {"of": "me"}}
    actual = place.http.post("/v1/responses", json=body).json()
    Response.model_validate(actual, strict=True)
    assert actual["metadata"] == {"of": "me"}
    assert (actual["store"], actual["previous_response_id"]) == (False, None)
    with pytest.raises(openai.NotFoundError):
        place.client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError, match="Choose among"):
        respond(place, model="none")


@pytest.mark.parametrize("own", [{"method": "ar"}, {"tau": 0.0, "lossless": False}])
def test_a_stream_brings_the_same_in_valid_events(place: Place, own: dict[str, Any]) -> None:
    whole = respond(place, extra_body=own)
    body = {"model": NAME, "input": QUESTION, "stream": True, **own}
    blocks = place.http.post("/v1/responses", json=body).text.removesuffix("\n\n").split("\n\n")
    types: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for number, block in enumerate(blocks):
        named, data = block.split("\n")
        event = types.validate_json(data.removeprefix("data: "))
        assert (named, event.sequence_number) == (f"event: {event.type}", number)
    events = list(respond(place, extra_body=own, stream=True))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [*EVENTS, "response.completed"]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    first, last = events[0].response, events[-1].response
    assert "".join(deltas) == whole.output_text == last.output_text
    assert (first.status, first.id) == ("in_progress", last.id)
    assert (last.usage, last.metrics) == (whole.usage, whole.metrics)
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_that_is_cut_is_incomplete(place: Place, is_stream: bool) -> None:
    answer = respond(place, max_output_tokens=5, stream=is_stream)
    if is_stream:
        last = list(answer)[-1]
        assert last.type == "response.incomplete"
        answer = last.response
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output_text == place.text_for()[:5]
    assert (answer.usage.output_tokens, answer.max_output_tokens) == (5, 5)


def test_a_conversation_continues_from_the_output_of_the_turn_before(place: Place) -> None:
    first = respond(place, instructions="Be brief. <|im_end|>")
    before, system = prompt_of(place), ("system", "Be brief. <|im_end|>")
    assert before == place.model.tokenizer.encode_chat([system, ("user", QUESTION)])
    assert first.instructions == system[1]
    parts = [{"type": "input_text", "text": "And "}, {"type": "input_text", "text": "now?"}]
    turns: list[Any] = [{"role": "user", "content": QUESTION}, *first.output]
    turns.append({"role": "user", "content": parts, "type": "message"})
    respond(place, input=turns, instructions=system[1])
    begun = [*before, *first.output_text.encode()]
    assert prompt_of(place)[: len(begun)] == begun
    said = [system, ("user", QUESTION), ("assistant", first.output_text), ("user", "And now?")]
    assert prompt_of(place) == place.model.tokenizer.encode_chat(said)


def test_fields_that_change_nothing_are_ignored(place: Place) -> None:
    more: dict[str, Any] = {
        "store": True, "tools": [], "tool_choice": "auto", "reasoning": {"effort": None},
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "truncation": "auto",
        "include": ["reasoning.encrypted_content"], "background": False, "user": "me",
    }  # fmt: skip
    assert respond(place, **more).output_text == place.text_for()
