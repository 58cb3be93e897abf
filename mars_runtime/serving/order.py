"""What a request asks for, read and checked before any model is looked at.

What this server cannot do is refused where leaving it out would change the answer; fields that are
unknown or change nothing are passed over, as other servers do. Knows no engine and no tokenizer.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.fields import Fields, checked_text
from mars_runtime.serving.messages import read_messages
from mars_runtime.settings import MAX_NEW_TOKENS, RECOMMENDED, DecodeSettings, SettingsError
from mars_runtime.text import Said

Kind = Literal["chat", "text"]
"""Whether the prompt is a conversation, or a text that is gone on with as it is."""
MAX_STOPS, MAX_STOP_CHARS = 4, 200
MAX_RUNNERS_UP = 3  # that events carry
MAX_PROMPT_IDS = 1_000_000  # bounded by the body anyhow
OWN = (
    "tau",
    "block_size",
    "metric",
    "lossless",
    "groups",
    "lookup",
    "threshold",
    "target",
    "method",
)
"""Our settings among the fields; ``temperature``, ``top_p`` and ``seed`` are OpenAI's."""
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


def read_order(kind: Kind, fields: Fields) -> Order:
    """The request. Raises ApiError."""
    for name, neutral in NEUTRAL.items():
        value = fields.raw(name)
        if value is not None and not any(_is_same(value, each) for each in neutral):
            fields.refuse(name, "is not supported here: leave it out")
    settings = _settings(fields)
    return Order(
        kind,
        fields.text("model"),
        tuple(read_messages(fields)) if kind == "chat" else _prompt(fields),
        settings,
        _max_tokens(fields),
        _stops(fields),
        _num_runners_up(kind, fields, settings),
        fields.truth("stream"),
        fields.inner("stream_options").truth("include_usage"),
    )


def _is_same(value: object, neutral: object) -> bool:
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _settings(fields: Fields) -> DecodeSettings:
    settings = changed(RECOMMENDED, fields, (*OWN, "temperature", "top_p", "seed"))
    if settings.temperature and not fields.has("seed"):
        settings = replace(settings, seed=secrets.randbelow(2**31))
    return settings


def changed(settings: DecodeSettings, fields: Fields, names: Iterable[str]) -> DecodeSettings:
    """The settings with those of these names that are there, each judged alone so that it can be
    named. Raises ApiError."""
    for name in names:
        if fields.has(name):
            chosen: dict[str, Any] = {name: fields.raw(name)}
            try:
                settings = replace(settings, **chosen)
            except SettingsError as error:
                raise ApiError(400, str(error), name) from None
    return settings


def _prompt(fields: Fields) -> str | tuple[int, ...]:
    """A text, token ids, or a list with a single one of either."""
    value = fields.raw("prompt")
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        (value,) = value
    if isinstance(value, str):
        return checked_text(value, "prompt")
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        return tuple(value)
    if isinstance(value, list) and len(value) > 1:
        fields.refuse("prompt", "must be one: send a request for each, they share forwards anyhow")
    fields.refuse("prompt", "must be a text or a list of token ids")


def _max_tokens(fields: Fields) -> int | None:
    newer = fields.whole("max_completion_tokens", 1, MAX_NEW_TOKENS)
    older = fields.whole("max_tokens", 1, MAX_NEW_TOKENS)
    return older if newer is None else newer


def _stops(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None or value == []:
        return ()
    stops = [value] if isinstance(value, str) else fields.items("stop", MAX_STOPS)
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_CHARS:
            fields.refuse("stop", f"must be texts of 1 to {MAX_STOP_CHARS} characters")
        checked_text(stop, "stop")
    return tuple(stops)


def _num_runners_up(kind: Kind, fields: Fields, settings: DecodeSettings) -> int | None:
    if kind == "text":
        number = fields.whole("logprobs", 0, MAX_RUNNERS_UP)
    else:
        top = fields.whole("top_logprobs", 0, MAX_RUNNERS_UP)
        number = (top or 0) if fields.truth("logprobs") else None
        if top and number is None:
            fields.refuse("top_logprobs", "needs logprobs to be true")
    if number is not None and settings.metric != "probability":
        fields.refuse("logprobs", "can only be told with the metric probability")
    return number
