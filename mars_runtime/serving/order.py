"""What a request asks for, read and checked before any model is looked at.

What this server cannot do is refused where leaving it out would change the answer; fields that are
unknown or change nothing are passed over, as other servers do. Knows no engine and no tokenizer.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mars_runtime.serving.bodies import (
    SERVED,
    AnswerBody,
    Body,
    ChatBody,
    ChatFields,
    Message,
    TextBody,
    TextFields,
    checked,
    parse,
)
from mars_runtime.serving.errors import ApiError
from mars_runtime.settings import RECOMMENDED, DecodeSettings, SettingsError
from mars_runtime.text import Said

Kind = Literal["chat", "text"]
"""Whether the prompt is a conversation, or a text that is gone on with as it is."""
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "echo": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""What of OpenAI's fields cannot be done here, and the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class Order:
    """A request as posted.

    prompt: what was said, or a text, or token ids. max_tokens: None where nothing was said.
    num_runners_up: of each token that are to be told with its probability; None for no logprobs.
    """

    kind: Kind
    model: str
    prompt: tuple[Said, ...] | str | tuple[int, ...]
    settings: DecodeSettings
    max_tokens: int | None
    stops: tuple[str, ...]
    num_runners_up: int | None
    is_stream: bool
    has_usage: bool


def read_order(kind: Kind, body: bytes) -> Order:
    """The request. Raises ApiError."""
    posted = parse(body)
    for name, neutral in NEUTRAL.items():
        if name in posted and not any(_is_same(posted[name], each) for each in neutral):
            raise ApiError(400, f"{name} is not supported here: leave it out.", name)
    asked: ChatFields | TextFields = checked(ChatBody if kind == "chat" else TextBody, posted)
    settings = _settings(asked)
    return Order(
        kind,
        asked.model,
        _said(asked.messages) if isinstance(asked, ChatFields) else _text_or_ids(asked.prompt),
        settings,
        _max_tokens(asked),
        tuple(asked.stop),
        _num_runners_up(asked, settings),
        asked.stream,
        asked.stream_options.include_usage,
    )


def _is_same(value: object, neutral: object) -> bool:
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _settings(asked: AnswerBody) -> DecodeSettings:
    settings = changed(RECOMMENDED, asked, SERVED)
    if settings.temperature and "seed" not in asked.model_fields_set:
        settings = replace(settings, seed=secrets.randbelow(2**31))
    return settings


def changed(settings: DecodeSettings, asked: Body, names: Iterable[str]) -> DecodeSettings:
    """The settings with those of these names that were posted, one after the other, so that the one
    which does not go with the rest can be named. Raises ApiError."""
    for name in names:
        if name in asked.model_fields_set:
            chosen: dict[str, Any] = {name: getattr(asked, name)}
            try:
                settings = replace(settings, **chosen)
            except SettingsError as error:
                raise ApiError(400, str(error), name) from None
    return settings


def _said(messages: Sequence[Message]) -> tuple[Said, ...]:
    if messages[-1].role != "user":
        raise ApiError(400, "messages must end with one of the role user.", "messages")
    return tuple((ROLES[each.role], each.content) for each in messages)


def _text_or_ids(prompt: str | list[int]) -> str | tuple[int, ...]:
    return prompt if isinstance(prompt, str) else tuple(prompt)


def _max_tokens(asked: AnswerBody) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if name in asked.model_fields_set:
            return int(getattr(asked, name))
    return None


def _num_runners_up(asked: AnswerBody, settings: DecodeSettings) -> int | None:
    number = asked.logprobs if isinstance(asked, TextFields) else None
    if isinstance(asked, ChatFields):
        number = asked.top_logprobs if asked.logprobs else None
        if asked.top_logprobs and number is None:
            raise ApiError(400, "top_logprobs needs logprobs to be true.", "top_logprobs")
    if number is not None and settings.metric != "probability":
        raise ApiError(400, "logprobs can only be told with the metric probability.", "logprobs")
    return number
