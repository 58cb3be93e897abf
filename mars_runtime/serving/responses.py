"""OpenAI's Responses API (``POST /v1/responses``), text in and text out.

A request is translated into one for a chat, and the chat's answer into a response or its stream of
events. No response is stored, so each request brings its whole conversation.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mars_runtime.serving.answer import Answer, Envelope, Json, Piece, pieces
from mars_runtime.serving.errors import ApiError, refusal_of
from mars_runtime.serving.models import Answering
from mars_runtime.serving.requests import (
    MAX_MESSAGES,
    MAX_PARTS,
    SERVED,
    Body,
    Caps,
    Completion,
    NumTokens,
    Role,
    Stops,
    Text,
    checked,
    completion_of,
    parse,
    refuse,
    with_settings,
)
from mars_runtime.settings import RECOMMENDED

PARTS = ("input_text", "output_text", "text")
UNSTORED = "No response is stored here: send the whole conversation as input."
UNSUPPORTED = "{field} is not supported here: leave it out."
WANTED = f"a text or a list of 1 to {MAX_MESSAGES} messages"
LAST = "input must end with a message of the role user."
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "tools": ([],),
    "prompt": (),
    "top_logprobs": (0,),
}
"""Fields that this server cannot obey, and their values that change nothing."""
LOGPROBS = "message.output_text.logprobs"
ENDED = {"stop": "completed", "length": "incomplete"}
"""Statuses of a response by the reason for which the chat's answer ended."""


def _messages(value: Any) -> Any:
    """A text as the only message; of a list, every item has to be a message."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    is_list = isinstance(value, list) and 1 <= len(value) <= MAX_MESSAGES
    if not is_list or not all(map(_is_message, value)):
        refuse(f"must be {WANTED}")
    return value


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type", "message") == "message"


def _content(value: Any) -> Any:
    """A text, or the texts of its parts joined."""
    if not isinstance(value, list):
        return value
    if not 1 <= len(value) <= MAX_PARTS:
        refuse(f"must be a list of 1 to {MAX_PARTS} values")
    for part in value:
        is_text = isinstance(part, dict) and part.get("type") in PARTS
        if not is_text or not isinstance(part.get("text"), str):
            refuse(f"must be a text, or parts of the type {PARTS[0]} or {PARTS[1]}")
    return "".join(part["text"] for part in value)


class InputMessage(Body):
    """A message of the conversation."""

    role: Role
    content: Annotated[Text, BeforeValidator(_content)] = Field(
        description="a text, or parts of the type input_text or output_text"
    )


class ResponsesFields(Body):
    """A text or a conversation to respond to."""

    model: Text = Field(description="a name of /v1/models")
    input: Annotated[list[InputMessage], BeforeValidator(_messages)] = Field(description=WANTED)
    instructions: Text = Field(default="", description="a system message before the input")
    max_output_tokens: NumTokens = RECOMMENDED.max_new_tokens
    stop: Stops = Field(default=[])
    stream: bool = False
    metadata: dict[Text, Text] = Field(default={}, description="texts that are returned as sent")


ResponsesBody = with_settings(ResponsesFields, SERVED)


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request as posted, and the chat that answers it."""

    posted: ResponsesFields
    chat: Completion


def read_request(body: bytes, caps: Caps) -> ResponseRequest:
    """Parse a request. Raises ApiError."""
    values = parse(body)
    for field in ("previous_response_id", "conversation"):
        if field in values:
            raise ApiError(400, f"{field} is not supported. {UNSTORED}", field)
    _check_supported(values)
    posted = checked(ResponsesBody, values)
    limit = caps.max_new_tokens
    if posted.max_output_tokens > limit and "max_output_tokens" in values:
        sentence = f"max_output_tokens must be at most {limit}, got {posted.max_output_tokens}."
        raise ApiError(400, sentence, "max_output_tokens")
    if posted.input[-1].role != "user":
        raise ApiError(400, LAST, "input")
    messages = [message.model_dump() for message in posted.input]
    if posted.instructions:
        messages.insert(0, {"role": "system", "content": posted.instructions})
    chat = {name: values[name] for name in (*SERVED, "model", "stop", "stream") if name in values}
    if "max_output_tokens" in values:
        chat["max_completion_tokens"] = posted.max_output_tokens
    return ResponseRequest(posted, completion_of("chat", {**chat, "messages": messages}))


def _check_supported(values: Json) -> None:
    """Raises ApiError for what would change the response and cannot be done."""
    for field, neutral in NEUTRAL.items():
        if field in values and values[field] not in neutral:
            raise ApiError(400, UNSUPPORTED.format(field=field), field)
    text, include = values.get("text"), values.get("include")
    if isinstance(text, dict) and text.get("format", {"type": "text"}) != {"type": "text"}:
        raise ApiError(400, UNSUPPORTED.format(field="text.format"), "text.format")
    if isinstance(include, list) and LOGPROBS in include:
        sentence = f"{LOGPROBS} is not supported here: ask for a chat completion with logprobs."
        raise ApiError(400, sentence, "include")


class ResponseEnvelope:
    """What the events of one response have in common, and the response as a whole."""

    def __init__(self, asked: ResponseRequest, chat: Envelope) -> None:
        self.name = f"resp_{uuid.uuid4().hex}"
        self._item = f"msg_{uuid.uuid4().hex}"
        self._asked = asked
        self._chat = chat
        self._numbers = count()

    def whole(self, answer: Answer, text: str) -> Json:
        """Return a response that is complete or was cut at its limit."""
        told = self._chat.whole(answer, Piece(text))
        status = ENDED[answer.finish_reason]
        used, cached = told["usage"], told["usage"]["prompt_tokens_details"]["cached_tokens"]
        is_cut = status == "incomplete"
        return {
            **self._response(status, [self._message(status, text)]),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {
                "input_tokens": used["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                "output_tokens": used["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": used["total_tokens"],
            },
            "mars": told["mars"],
            "metrics": told["metrics"],
        }

    async def events(self, run: Answering, answer: Answer) -> AsyncIterator[str]:
        """Stream the response as server-sent events; the last one holds it as a whole."""
        begun = self._response("in_progress", [])
        yield self._event("created", response=begun)
        yield self._event("in_progress", response=begun)
        item, part = {"output_index": 0}, {"item_id": self._item, "output_index": 0}
        part["content_index"] = 0
        empty = {**self._message("in_progress", ""), "content": []}
        yield self._event("output_item.added", **item, item=empty)
        yield self._event("content_part.added", **part, part=_part(""))
        text = ""
        try:
            async for piece in pieces(run, answer):
                text += piece.text
                if piece.text:
                    yield self._event("output_text.delta", **part, delta=piece.text, logprobs=[])
        except Exception as error:
            failed = self._response("failed", [self._message("incomplete", text)])
            why = {"code": "server_error", "message": str(refusal_of(error))}
            yield self._event("failed", response={**failed, "error": why})
            return
        whole = self.whole(answer, text)
        (message,) = whole["output"]
        yield self._event("output_text.done", **part, text=text, logprobs=[])
        yield self._event("content_part.done", **part, part=_part(text))
        yield self._event("output_item.done", **item, item=message)
        yield self._event(whole["status"], response=whole)

    def _event(self, name: str, **fields: Any) -> str:
        told = {"type": f"response.{name}", "sequence_number": next(self._numbers), **fields}
        data = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        return f"event: response.{name}\ndata: {data}\n\n"

    def _message(self, status: str, text: str) -> Json:
        content = [_part(text)]
        kind = {"id": self._item, "type": "message", "role": "assistant"}
        return {**kind, "status": status, "content": content}

    def _response(self, status: str, output: list[Json]) -> Json:
        posted, settings = self._asked.posted, self._asked.chat.settings
        return {
            "id": self.name,
            "object": "response",
            "created_at": self._chat.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": posted.instructions or None,
            "max_output_tokens": self._asked.chat.max_tokens,
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
