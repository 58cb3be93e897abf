"""The bodies of requests as pydantic models, and the engine's requests that are made from them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from mars_runtime.engine.request import Request
from mars_runtime.files.json_values import MAX_INT, sentence_of
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import EngineModel
from mars_runtime.settings import (
    MAX_NEW_TOKENS,
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    LogitBias,
    SettingsError,
    as_logit_bias,
)
from mars_runtime.text import TextError, Tokenizer

NO_JSON = "The request must be one JSON object in UTF-8, with finite numbers."
LAST = "The last message must have the role user or assistant."
FINAL = "continue_final_message requires that the last message has the role assistant."
BOTH = "continue_final_message and add_generation_prompt cannot both be true. Remove one of them."
OWN_FIELD = "chat_template_kwargs must not contain {}. Remove it."
RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
ECHO_LOGPROBS = "echo does not work with logprobs. Remove one of them."
NO_LOGPROBS = "top_logprobs requires logprobs to be true."
NEEDS_PROBABILITY = "logprobs requires metric to be probability. Change metric or remove logprobs."
BIASED_TOKENS = "logit_bias must have token ids below {}, got {}."
TOO_DEEP = "Choose a B of at most {}, this checkpoint's trained depth."
TOO_LONG = "Shorten the prompt to at most {:,} characters, got {:,}."
EMPTY = "The prompt is empty. Send a text or token ids."
TOO_MANY = "n times the number of prompts must be at most {}, got {} times {}."
NOT_BEST = "best_of must equal n, got {} and {}."
FOREIGN_IDS = "The prompt contains invalid token ids. Send ids of this model's tokens, but no mask."
MAX_MESSAGES, MAX_PARTS, MAX_CHOICES = 1000, 100, 128
MAX_STOPS, MAX_STOP_CHARS = 64, 200
MAX_NAME = 100  # number of characters of an unknown field's name in an error message
UP_TO_LIMIT = -1  # value of max_tokens for as many tokens as fit
MAX_RUNNERS_UP = 3  # number of alternatives per token in the events of a run
NUM_SEEDS = 2**31
NOT_SERVED = ("max_new_tokens", "draft", "masked")
SERVED = tuple(name for name in SETTINGS if name not in NOT_SERVED)
LIMITS = ("max_completion_tokens", "max_tokens")
"""Fields whose null does not count as absent: it allows as many tokens as fit."""
HARMLESS = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "parallel_tool_calls"),
    *("prompt_cache_key", "prompt_cache_retention", "cache_prompt", "request_id"),
)
"""Fields that are accepted with any value, because they change no answer."""
Neutral = Mapping[str, tuple[Any, ...]]
NEUTRAL: Neutral = {
    **dict.fromkeys(("tools", "functions"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("use_beam_search", "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), (True,)),
    **dict.fromkeys(("length_penalty", "typical_p"), (1,)),
    **dict.fromkeys(("xtc_probability", "dry_multiplier", "mirostat"), (0,)),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "verbosity": ("medium",),
}
"""Unsupported fields that clients send by default, with their values that change nothing."""


Fault = tuple[object, str, str]
"""Whether something is wrong (by its truth value), the field, and a sentence."""


class Body(BaseModel):
    """A field that would change the answer is supported or rejected."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
    harmless: ClassVar[Collection[str]] = HARMLESS
    neutral: ClassVar[Neutral] = NEUTRAL

    @model_validator(mode="before")
    @classmethod
    def _without_unused(cls, posted: Any) -> Any:
        if not isinstance(posted, dict):
            return posted
        return {
            name: value
            for name, value in posted.items()
            if name in cls.model_fields
            or (name not in cls.harmless and value not in cls.neutral.get(name, ()))
        }


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


NumTokens = Annotated[int, Field(ge=1, le=MAX_INT)]
"""Values above the server's maximum are lowered, not rejected: clients send larger defaults."""
MaxTokens = Annotated[
    NumTokens | Literal[-1] | None,
    Field(description="maximum number of tokens in an answer; null or -1 for as many as fit"),
]
NumChoices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
NumRunnersUp = Annotated[int, Field(ge=0, le=MAX_RUNNERS_UP)]
Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]],
    Field(max_length=MAX_STOPS, description="texts that end the answer"),
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
]
StopIds = Annotated[
    list[Annotated[int, Field(ge=0, le=MAX_INT)]],
    Field(max_length=MAX_STOPS, description="ids of tokens that end the answer"),
]
_TYPES = {
    **get_type_hints(DecodeSettings, include_extras=True),
    "seed": Annotated[int, Field(ge=-(2**63), le=2**63 - 1)],
    "logit_bias": Annotated[
        LogitBias, BeforeValidator(as_logit_bias, json_schema_input_type=dict[str, float])
    ],
}
if TYPE_CHECKING:
    SettingsFields = Body
else:
    SettingsFields = create_model(
        "SettingsFields",
        __base__=Body,
        **{
            name: (
                _TYPES[name],
                Field(getattr(RECOMMENDED, name), description=SETTINGS[name]["description"]),
            )
            for name in SERVED
        },
    )


class TextPart(Body):
    """A part of a message."""

    neutral: ClassVar[Neutral] = {"annotations": ([],), "logprobs": ([],)}
    type: Literal["text", "input_text", "output_text"]
    text: str


class MessageBody(Body):
    """A message of a conversation."""

    harmless = (  # fields of an earlier answer that clients send back
        *("id", "name", "status", "phase", "refusal", "annotations"),
        *("reasoning", "reasoning_content"),
    )
    neutral: ClassVar[Neutral] = {"tool_calls": ([],)}
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS)] = Field(
        description="a string, or a list of parts of type text; may be absent for the assistant"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_content(cls, posted: Any) -> Any:
        is_answer = isinstance(posted, dict) and posted.get("role") == "assistant"
        return {"content": "", **posted} if is_answer else posted

    @property
    def said(self) -> tuple[str, str]:
        parts = (
            [self.content] if isinstance(self.content, str) else [it.text for it in self.content]
        )
        return "system" if self.role == "developer" else self.role, "".join(parts)


class StreamOptions(Body):
    """Options of a stream."""

    harmless = ("include_obfuscation", "continuous_usage_stats")
    include_usage: bool = False


class SampledBody(SettingsFields):
    """Fields of every request body."""

    model: str = Field(description="a model name from /v1/models")
    stop: Stops = Field([])
    stop_token_ids: StopIds = Field([])
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class CompletionBody(SampledBody):
    prompt_field: ClassVar[str]
    max_tokens: MaxTokens = RECOMMENDED.max_new_tokens
    max_completion_tokens: MaxTokens = RECOMMENDED.max_new_tokens
    n: NumChoices = Field(
        1,
        description="number of answers to each prompt; each has the seed of the one before plus 1",
    )
    best_of: NumChoices | None = Field(None, description="must equal n")

    @cached_property
    def settings(self) -> DecodeSettings:
        """The settings, with a random seed if none was posted. Raises ApiError."""
        chosen = {name: getattr(self, name) for name in SERVED if name in self.model_fields_set}
        if "seed" in chosen:
            chosen["seed"] %= NUM_SEEDS
        try:
            settings = replace(RECOMMENDED, **chosen)
        except SettingsError as error:
            raise ApiError(400, str(error), error.field) from None
        if settings.temperature and "seed" not in self.model_fields_set:
            settings = replace(settings, seed=secrets.randbelow(NUM_SEEDS))
        return settings

    @property
    def num_tokens(self) -> int | None:
        """The requested number of tokens; UP_TO_LIMIT for as many as fit, None if absent."""
        posted = [getattr(self, name) for name in LIMITS if name in self.model_fields_set]
        return next(filter(None, posted), UP_TO_LIMIT) if posted else None


class ChatBody(CompletionBody):
    """A conversation to answer. By default a last message of the assistant is continued."""

    prompt_field = "messages"
    neutral: ClassVar[Neutral] = {**NEUTRAL, "echo": (False,)}
    messages: list[MessageBody] = Field(min_length=1, max_length=MAX_MESSAGES)
    continue_final_message: bool | None = Field(
        None, description="true to continue the last message, which must have the role assistant"
    )
    add_generation_prompt: bool | None = Field(
        None,
        description="false to end the prompt with the last message; true to begin a new answer "
        "even if the last message is an answer",
    )
    enable_thinking: bool | None = Field(
        None, description="same as enable_thinking in chat_template_kwargs"
    )
    chat_template_kwargs: dict[str, Any] = Field(
        {}, description="variables of the model's chat template"
    )
    logprobs: bool = False
    top_logprobs: NumRunnersUp = 0

    @property
    def num_runners_up(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    def texts(self, tokenizer: Tokenizer) -> Iterable[str]:
        """Return the texts whose length is limited. Raises ApiError."""
        return (message.said[1] for message in self.messages)

    def encoded(self, tokenizer: Tokenizer) -> list[list[int]]:
        *before, (role, content) = conversation = [message.said for message in self.messages]
        if role == "assistant":
            return [tokenizer.encode_chat(conversation, **self._options)]
        return [tokenizer.encode_prompt(content, before=before, options=self._options)]

    def faults(self) -> Iterator[Fault]:
        last, is_continued = self.messages[-1].role, self._is_continued
        reserved = ", ".join(sorted(RESERVED.intersection(self.chat_template_kwargs)))
        yield last not in ("user", "assistant"), self.prompt_field, LAST
        yield is_continued and last != "assistant", "continue_final_message", FINAL
        yield is_continued and self.add_generation_prompt, "continue_final_message", BOTH
        yield reserved, "chat_template_kwargs", OWN_FIELD.format(reserved)
        yield self.top_logprobs and not self.logprobs, "top_logprobs", NO_LOGPROBS

    @property
    def _is_continued(self) -> bool:
        if self.continue_final_message is not None:
            return self.continue_final_message
        return self.messages[-1].role == "assistant" and self.add_generation_prompt is None

    @property
    def _options(self) -> dict[str, Any]:
        options = {**self.chat_template_kwargs, "continue_final_message": self._is_continued}
        for name in ("add_generation_prompt", "enable_thinking"):
            if (value := getattr(self, name)) is not None:
                options[name] = value
        return options


class TextBody(CompletionBody):
    """A text to continue, or several."""

    prompt_field = "prompt"
    neutral: ClassVar[Neutral] = {**NEUTRAL, "suffix": ("",)}
    prompt: str | list[int] | list[str | list[int]] = Field(
        description="a string, a list of token ids, or a list of either"
    )
    echo: bool = Field(False, description="true to begin the answer with the prompt")
    parse_special: bool = Field(
        False, description="true to read the names of control tokens in a text as these tokens"
    )
    logprobs: NumRunnersUp | None = None

    @property
    def num_runners_up(self) -> int | None:
        return self.logprobs

    @property
    def prompts(self) -> list[Any]:
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return [self.prompt] if is_one else list(self.prompt)

    def texts(self, tokenizer: Tokenizer) -> Iterable[str]:
        for prompt in self.prompts:
            is_text = isinstance(prompt, str)
            yield prompt if is_text else tokenizer.decode(check_ids(prompt, tokenizer))

    def encoded(self, tokenizer: Tokenizer) -> list[list[int]]:
        encode = partial(tokenizer.encode_text, parse_special=self.parse_special)
        ids = (encode(prompt) if isinstance(prompt, str) else prompt for prompt in self.prompts)
        return [check_ids(each, tokenizer) for each in ids]

    def faults(self) -> Iterator[Fault]:
        yield not self.prompt or [] in self.prompts, "prompt", EMPTY
        number = len(self.prompts)
        yield self.n * number > MAX_CHOICES, "n", TOO_MANY.format(MAX_CHOICES, self.n, number)
        yield self.echo and self.logprobs is not None, "echo", ECHO_LOGPROBS


AnswerBody = ChatBody | TextBody


def tidy(value: Any) -> Any:
    """Return a JSON value without null fields, which count as absent, and with 6.0 as 6."""
    if isinstance(value, dict):
        items = value.items()
        return {name: tidy(v) for name, v in items if v is not None or name in LIMITS}
    if isinstance(value, list):
        return [tidy(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def field_error(error: RequestValidationError) -> ApiError:
    faults = sorted(error.errors(), key=lambda fault: -len(fault["loc"]))
    *place, _ = faults[0]["loc"]
    same = [fault for fault in faults if fault["loc"][:-1] == tuple(place)]
    names: list[str] = []
    value = error.body
    for part in faults[0]["loc"][1:]:  # other parts are names of types
        if isinstance(value, dict) and (part in value or faults[0]["type"] == "missing"):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and isinstance(value[part], dict):
            value = value[part]
        else:
            break
        names.append(str(part))
    path = ".".join(names)
    field = path if len(path) <= MAX_NAME else f"{path[:MAX_NAME]}..."
    if not names:
        return ApiError(400, NO_JSON)
    is_union = len(names) < len(place)
    return ApiError(400, sentence_of(field, same if is_union else same[:1]), field)


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits that protect the server; 0 for no limit.

    max_seconds: time from submission after which an answer is returned as it is.
    max_prompt_chars: of a text or of one message.
    keep_alive_seconds: time after which a stream without news sends a comment, for proxies.
    """

    max_new_tokens: int = MAX_NEW_TOKENS
    max_seconds: float = 300.0
    max_body_bytes: int = 1_048_576
    max_runs_per_address: int = 0
    max_prompt_chars: int = 0
    keep_alive_seconds: float = 3.0


DEFAULT_CAPS = Caps()


def make_requests(body: AnswerBody, model: EngineModel, caps: Caps) -> list[list[Request]]:
    """Return a request per answer, for each prompt, with limits that fit. Raises ApiError."""
    for is_wrong, field, sentence in chain(body.faults(), _faults(body, model, caps)):
        if is_wrong:
            raise ApiError(400, sentence, field)
    most = min(caps.max_new_tokens, MAX_NEW_TOKENS)
    try:
        prompts = body.encoded(model.tokenizer)
    except TextError as error:
        raise ApiError(400, str(error), body.prompt_field) from None
    settings, requests = body.settings, []
    for ids in prompts:
        number = body.num_tokens
        if number in (None, UP_TO_LIMIT) or number > most:
            default = RECOMMENDED.max_new_tokens if number is None else most
            number = max(1, min(default, most, model.engine.capacity - len(ids)))
        seeds = [(settings.seed + index) % NUM_SEEDS for index in range(body.n)]
        of_choices = [replace(settings, max_new_tokens=number, seed=seed) for seed in seeds]
        requests.append([Request(ids, each, caps.max_seconds) for each in of_choices])
    return requests


def _faults(body: AnswerBody, model: EngineModel, caps: Caps) -> Iterator[Fault]:
    settings, size, most = body.settings, model.tokenizer.size, caps.max_prompt_chars
    depth, has_logprobs = settings.block_size, body.num_runners_up is not None
    yield body.best_of not in (None, body.n), "best_of", NOT_BEST.format(body.best_of, body.n)
    yield has_logprobs and settings.metric != "probability", "logprobs", NEEDS_PROBABILITY
    is_deep = isinstance(depth, int) and depth > model.block_size
    yield is_deep, "block_size", TOO_DEEP.format(model.block_size)
    highest = max((token for token, _ in settings.logit_bias), default=-1)
    yield highest >= size, "logit_bias", BIASED_TOKENS.format(size, highest)
    longest = max(map(len, body.texts(model.tokenizer))) if most else 0
    yield longest > most, body.prompt_field, TOO_LONG.format(most, longest)


def check_ids(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Return ``ids`` if they are allowed in a prompt; the mask token is not. Raises ApiError."""
    size, mask = tokenizer.size, tokenizer.mask_id
    if any(not 0 <= token < size or token == mask for token in ids):
        raise ApiError(400, FOREIGN_IDS, "prompt")
    return list(ids)
