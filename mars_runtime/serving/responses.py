"""OpenAI's Responses API (``POST /v1/responses``), for text only.

A request is translated to a chat completion, and the answer to a response or to a stream of events.
No response is stored, so each request must contain the whole conversation.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mars_runtime.files.json_values import json_line
from mars_runtime.serving.answer import Envelope, Json, Piece, StreamedAnswer, pieces
from mars_runtime.serving.errors import ApiError, api_error
from mars_runtime.serving.models import Answering
from mars_runtime.serving.requests import (
    MAX_MESSAGES,
    MAX_NAME,
    SERVED,
    Body,
    CompletionRequest,
    MessageBody,
    NumTokens,
    StopIds,
    Stops,
    StreamOptions,
    Text,
    body_of,
    checked,
    completion_of,
    only,
    parse,
    reject,
)
from mars_runtime.serving.requests import NEUTRAL as CHAT_NEUTRAL
from mars_runtime.settings import RECOMMENDED

UNSTORED = "This server stores no responses. Send the whole conversation as input."
WANTED = f"a string or a list of 1 to {MAX_MESSAGES} messages"
LAST = "The last message of input must have the role user."
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **CHAT_NEUTRAL,
    "background": (False,),
    "reasoning": ({},),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncation": ("auto", "disabled"),
}
LOGPROBS = "message.output_text.logprobs"
NO_LOGPROBS = f"must not contain {LOGPROBS}. Use a chat completion with logprobs"
ENDED = {"stop": "completed", "length": "incomplete"}
"""Status of a response by the finish reason of the chat completion."""


def _messages(value: Any) -> Any:
    """Return the posted input as a list of messages; a text becomes one message of the user."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    is_list = isinstance(value, list) and len(value) <= MAX_MESSAGES
    if not is_list or not all(isinstance(item, dict) for item in value):
        reject(f"must be {WANTED}")
    messages = [item for item in value if item.get("type") != "reasoning"]
    for item in messages:
        if (kind := item.get("type", "message")) != "message":
            reject(f"must not contain items of type {ascii(kind)[:MAX_NAME]}")
    if not messages:
        reject(f"must be {WANTED}")
    return messages


def _include(value: Any) -> Any:
    if isinstance(value, list) and LOGPROBS in value:
        reject(NO_LOGPROBS)
    return value


class TextOptions(Body):
    """The form of the response."""

    format: Annotated[Any, BeforeValidator(partial(only, ({"type": "text"},)))] = None
    verbosity: Annotated[Any, BeforeValidator(partial(only, ("medium",)))] = None


class ResponsesFields(Body):
    """A text or a conversation that the model responds to."""

    model: Text = Field(description="a model name from /v1/models")
    input: Annotated[list[MessageBody], BeforeValidator(_messages)] = Field(description=WANTED)
    instructions: Text = Field(default="", description="system message in front of the input")
    max_output_tokens: NumTokens = RECOMMENDED.max_new_tokens
    stop: Stops = Field(default=[])
    stop_token_ids: StopIds = Field(default=[])
    stream: bool = False
    metadata: dict[Text, Text] = Field(default={}, description="texts that are returned unchanged")
    text: TextOptions = TextOptions()
    include: Annotated[Any, BeforeValidator(_include)] = None
    stream_options: StreamOptions = StreamOptions()


ResponsesBody = body_of(ResponsesFields, NEUTRAL)


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A parsed request and its translation to a chat completion."""

    posted: ResponsesFields
    chat: CompletionRequest


def read_request(body: bytes) -> ResponseRequest:
    """Parse, validate and translate a request. Raises ApiError."""
    values = parse(body)
    for field in ("previous_response_id", "conversation"):
        if field in values:
            raise ApiError(400, f"{field} is not supported. {UNSTORED}", field)
    posted = checked(ResponsesBody, values)
    if posted.input[-1].role != "user":
        raise ApiError(400, LAST, "input")
    messages = [{"role": message.role, "content": message.content} for message in posted.input]
    if posted.instructions:
        messages.insert(0, {"role": "system", "content": posted.instructions})
    names = (*SERVED, "model", "stop", "stop_token_ids", "stream")
    chat = {name: values[name] for name in names if name in values}
    if "max_output_tokens" in values:
        chat["max_completion_tokens"] = posted.max_output_tokens
    return ResponseRequest(posted, completion_of("chat", {**chat, "messages": messages}, "input"))


class ResponseEnvelope:
    """Builds the JSON of one response: the events of a stream, or the complete response."""

    def __init__(self, request: ResponseRequest, chat: Envelope) -> None:
        self.name = f"resp_{uuid.uuid4().hex}"
        self._item = f"msg_{uuid.uuid4().hex}"
        self._request = request
        self._chat = chat
        self._numbers = count()

    def complete(self, answer: StreamedAnswer, text: str) -> Json:
        """Return the response for a finished answer, complete or cut at its token limit."""
        completion = self._chat.complete(answer, Piece(text))
        status = ENDED[answer.finish_reason]
        usage = completion["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        is_cut = status == "incomplete"
        return {
            **self._response(status, [self._message(status, text)]),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            "mars": completion["mars"],
            "metrics": completion["metrics"],
        }

    async def events(self, run: Answering, answer: StreamedAnswer) -> AsyncIterator[str]:
        """Yield the response as server-sent events; the last event contains the whole response."""
        begun = self._response("in_progress", [])
        yield self._event("created", response=begun)
        yield self._event("in_progress", response=begun)
        part: Json = {"item_id": self._item, "output_index": 0, "content_index": 0}
        empty = {**self._message("in_progress", ""), "content": []}
        yield self._event("output_item.added", output_index=0, item=empty)
        yield self._event("content_part.added", **part, part=_part(""))
        text = ""
        try:
            async for piece in pieces(run, answer):
                text += piece.text
                if piece.text:
                    yield self._event("output_text.delta", **part, delta=piece.text, logprobs=[])
        except Exception as error:
            failed = self._response("failed", [self._message("incomplete", text)])
            failed["error"] = {"code": "server_error", "message": str(api_error(error))}
            yield self._event("failed", response=failed)
            return
        response = self.complete(answer, text)
        (message,) = response["output"]
        yield self._event("output_text.done", **part, text=text, logprobs=[])
        yield self._event("content_part.done", **part, part=_part(text))
        yield self._event("output_item.done", output_index=0, item=message)
        yield self._event(response["status"], response=response)

    def _event(self, name: str, **fields: Any) -> str:
        event = {"type": f"response.{name}", "sequence_number": next(self._numbers), **fields}
        return f"event: response.{name}\ndata: {json_line(event)}\n\n"

    def _message(self, status: str, text: str) -> Json:
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_part(text)],
        }

    def _response(self, status: str, output: list[Json]) -> Json:
        posted, settings = self._request.posted, self._request.chat.settings
        return {
            "id": self.name,
            "object": "response",
            "created_at": self._chat.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": posted.instructions or None,
            "max_output_tokens": self._request.chat.max_tokens,
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
