"""OpenAI's Responses API (``POST /v1/responses``), for text, translated to chat completions.

No response is stored, so each request must contain the whole conversation.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mars_runtime.files.json_values import json_line
from mars_runtime.serving.choices import Choice, Choices, Envelope, Json
from mars_runtime.serving.errors import ApiError, api_error
from mars_runtime.serving.requests import (
    HARMLESS,
    MAX_MESSAGES,
    NEUTRAL,
    SERVED,
    Body,
    ChatBody,
    MessageBody,
    Neutral,
    NumTokens,
    SampledBody,
)
from mars_runtime.settings import RECOMMENDED

NO_USER = "The last message of input must have the role user."
ENDED = {"stop": "completed", "length": "incomplete"}


def _messages(value: Any) -> Any:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    is_list = isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return [item for item in value if item.get("type") != "reasoning"] if is_list else value


class TextOptions(Body):
    """The form of the response: only plain text."""

    neutral: ClassVar[Neutral] = {"format": ({"type": "text"},), "verbosity": ("medium",)}


class InputBody(ChatBody):
    prompt_field = "input"


class ResponsesBody(SampledBody):
    """A text or a conversation that the model responds to."""

    harmless = tuple(name for name in HARMLESS if name != "metadata")
    neutral: ClassVar[Neutral] = {
        **NEUTRAL,
        "background": (False,),
        "reasoning": ({},),
        "top_logprobs": (0,),
        "truncation": ("auto", "disabled"),
    }
    input: Annotated[
        list[MessageBody],
        BeforeValidator(_messages, json_schema_input_type=str | list[MessageBody]),
        Field(min_length=1, max_length=MAX_MESSAGES, description="a string or a list of messages"),
    ]
    instructions: str = Field("", description="system message in front of the input")
    max_output_tokens: NumTokens = RECOMMENDED.max_new_tokens
    metadata: dict[str, str] = Field({}, description="texts that are returned unchanged")
    text: TextOptions = TextOptions()
    include: list[Literal["reasoning.encrypted_content"]] = Field([])

    def chat(self) -> InputBody:
        if self.input[-1].role != "user":
            raise ApiError(400, NO_USER, "input")
        names = (*SERVED, "model", "stop", "stop_token_ids", "stream")
        posted = {name: getattr(self, name) for name in names if name in self.model_fields_set}
        if "max_output_tokens" in self.model_fields_set:
            posted["max_completion_tokens"] = self.max_output_tokens
        messages = [message.model_dump() for message in self.input]
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        return InputBody.model_validate({**posted, "messages": messages})


class ResponseEnvelope:
    def __init__(
        self, posted: ResponsesBody, chat: InputBody, envelope: Envelope, choices: Choices
    ) -> None:
        self._id, self._item = f"resp_{uuid.uuid4().hex}", f"msg_{uuid.uuid4().hex}"
        self._posted, self._chat = posted, chat
        self._envelope, self._choices = envelope, choices
        self._choice: Choice = choices.all[0]
        self._numbers = count()

    def complete(self) -> Json:
        status = ENDED[self._choice.answer.finish_reason]
        usage = self._envelope.usage()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        is_cut = status == "incomplete"
        return {
            **self._response(status, [self._message(status)]),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            **self._envelope.figures(self._choice),
        }

    async def lines(self) -> AsyncIterator[str]:
        begun = self._response("in_progress", [])
        yield self._event("created", response=begun)
        yield self._event("in_progress", response=begun)
        part: Json = {"item_id": self._item, "output_index": 0, "content_index": 0}
        empty = {**self._message("in_progress"), "content": []}
        yield self._event("output_item.added", output_index=0, item=empty)
        yield self._event("content_part.added", **part, part=_part(""))
        try:
            async for _, piece in self._choices.pieces():
                if piece is not None and piece.text:
                    yield self._event("output_text.delta", **part, delta=piece.text, logprobs=[])
        except Exception as error:
            failed = self._response("failed", [self._message("incomplete")])
            failed["error"] = {"code": "server_error", "message": str(api_error(error))}
            yield self._event("failed", response=failed)
            return
        response, text = self.complete(), self._choice.text
        (message,) = response["output"]
        yield self._event("output_text.done", **part, text=text, logprobs=[])
        yield self._event("content_part.done", **part, part=_part(text))
        yield self._event("output_item.done", output_index=0, item=message)
        yield self._event(response["status"], response=response)

    def _event(self, name: str, **fields: Any) -> str:
        event = {"type": f"response.{name}", "sequence_number": next(self._numbers), **fields}
        return f"event: response.{name}\ndata: {json_line(event)}\n\n"

    def _message(self, status: str) -> Json:
        message = {"id": self._item, "type": "message", "role": "assistant", "status": status}
        return {**message, "content": [_part(self._choice.text)]}

    def _response(self, status: str, output: list[Json]) -> Json:
        posted, settings = self._posted, self._chat.settings
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._envelope.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": posted.instructions or None,
            "max_output_tokens": self._chat.num_tokens,
            "metadata": posted.metadata,
            "model": posted.model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": settings.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": settings.top_p,
            "truncation": "disabled",
            "usage": None,
        }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
