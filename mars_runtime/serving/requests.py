"""Parse and validate the endpoint's request bodies, and build the engine's requests from them.

Each body is a pydantic model, which validates it and describes it in the OpenAPI document. The
fields for decoding settings are those of ``DecodeSettings``. An error is one
sentence. As in OpenAI's API, a null field counts as absent. The bodies are closed: a field that is
neither supported nor listed here as harmless is rejected by name.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mars_runtime.engine.request import Request
from mars_runtime.files.json_values import MAX_INT, fault_of
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import ServedModel
from mars_runtime.settings import (
    MAX_NEW_TOKENS,
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    LogitBias,
    SettingsError,
    as_logit_bias,
)
from mars_runtime.text import Said, TextError, Tokenizer

NO_JSON = "The request must be one JSON object in UTF-8, with finite numbers."
UNSUPPORTED = "is not supported. Remove it"
LAST = "The last message must have the role user or assistant."
FINAL = "continue_final_message requires that the last message has the role assistant."
BOTH = "continue_final_message and add_generation_prompt cannot both be true. Remove one of them."
OWN_FIELD = "chat_template_kwargs must not contain {}. Remove it."
RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
NO_ECHO = "is only supported for text completions; remove it"
ECHO_LOGPROBS = "echo does not work with logprobs. Remove one of them."
NEEDS_PROBABILITY = "logprobs requires metric to be probability. Change metric or remove logprobs."
BIASED_TOKENS = "logit_bias must have token ids below {}, got {}."
FOREIGN_IDS = "The prompt contains invalid token ids. Send ids of this model's tokens, but no mask."
NO_TEXT = "Remove the characters that are not valid text."
MAX_MESSAGES, MAX_PARTS = 1000, 100
MAX_STOPS, MAX_STOP_CHARS = 64, 200
MAX_NAME = 100  # number of characters of an unknown field's name in an error message
MAX_CHOICES = 128
UP_TO_LIMIT = -1  # value of max_tokens for as many tokens as fit
TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of message parts that contain text, in chats and in the Responses API."""
MAX_RUNNERS_UP = 3  # number of alternatives per token in the events of a run
NUM_SEEDS = 2**31
NO_TOOLS = "Tools are not supported. Remove tools, tool_calls and messages with the role tool."
NOT_SERVED = ("max_new_tokens", "draft", "masked", "auto_objective")
SERVED = tuple(name for name in SETTINGS if name not in NOT_SERVED)
"""Settings that clients can choose. They have OpenAI's names where OpenAI has the same setting."""
_HALF = re.compile("[\ud800-\udfff]")  # a lone surrogate: valid in JSON, not in UTF-8
Role = Literal["system", "developer", "user", "assistant"]
Kind = Literal["chat", "text"]
"""Whether the prompt is a conversation or a text to be continued."""
Prompt = tuple[Said, ...] | str | tuple[int, ...]
"""A conversation, a text, or token ids."""
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
LIMITS = ("max_completion_tokens", "max_tokens")
HARMLESS = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "parallel_tool_calls"),
    *("prompt_cache_key", "prompt_cache_retention", "cache_prompt", "request_id"),
)
"""Fields without effect that are accepted with any value, because they change no answer."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "verbosity": ("medium",),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "typical_p": (1,),
    "xtc_probability": (0,),
    "dry_multiplier": (0,),
    "mirostat": (0,),
}
"""Unsupported fields that clients send by default, with their values that change nothing."""
B = TypeVar("B", bound=BaseModel)


def reject(why: str) -> NoReturn:
    """Reject a field. why: the end of a sentence that begins with the name of the field."""
    raise PydanticCustomError("why", "{why}", {"why": why})


def _whole_text(value: str) -> str:
    """Return the text if UTF-8 can encode it; otherwise reject the field."""
    if _HALF.search(value):
        raise PydanticCustomError("sentence", NO_TEXT)
    return value


def _content(value: Any) -> Any:
    """Return the content of a message as one text.

    If the content is a list of parts, their texts are joined.
    """
    if not isinstance(value, list):
        return value
    if len(value) > MAX_PARTS:
        reject(f"must be a list of at most {MAX_PARTS} values")
    for part in value:
        is_text = isinstance(part, dict) and part.get("type") in TEXT_PARTS
        if not is_text or not isinstance(part.get("text"), str):
            reject("must be a string, or a list of parts of type text")
    return "".join(part["text"] for part in value)


def _objects(value: Any) -> Any:
    if isinstance(value, list) and not all(isinstance(part, dict) for part in value):
        reject("must be a list of objects with role and content")
    return value


def _no_tools(value: Any) -> Any:
    if value not in (None, []):
        raise PydanticCustomError("sentence", NO_TOOLS)
    return value


def _no_tool_role(role: Any) -> Any:
    if role in ("tool", "function"):
        raise PydanticCustomError("sentence", NO_TOOLS)
    return role


def _no_echo(value: Any) -> Any:
    if value is not False:
        reject(NO_ECHO)
    return value


def _max_tokens(value: Any) -> Any:
    """Return the posted number of tokens, or None if only the context limits it."""
    if type(value) is int and value == UP_TO_LIMIT:
        return None
    if value is not None and (type(value) is not int or not 1 <= value <= MAX_INT):
        reject(f"must be a whole number from 1 to {MAX_INT}, or -1 for as many as fit")
    return value


def _prompts(value: Any) -> Any:
    """Return the posted prompts as a list, each a text or a list of token ids."""
    prompts = [value] if _is_prompt(value) else value
    if not isinstance(prompts, list) or not prompts or not all(map(_is_prompt, prompts)):
        reject("must be a string, a list of token ids, or a list of either")
    return prompts


def _is_prompt(value: Any) -> bool:
    if not isinstance(value, list):
        return isinstance(value, str)
    return bool(value) and all(type(token) is int for token in value)


def _stops(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        reject(f"must be a list of 1 to {MAX_STOPS} values")
    if not all(isinstance(stop, str) and 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
        reject(f"must be texts of 1 to {MAX_STOP_CHARS} characters")
    return stops


def _stop_ids(value: Any) -> Any:
    is_list = isinstance(value, list) and len(value) <= MAX_STOPS
    if not is_list or not all(type(token) is int and 0 <= token <= MAX_INT for token in value):
        reject(f"must be a list of at most {MAX_STOPS} token ids")
    return value


Unused = Annotated[Any, Field(description="accepted, without effect")]
Text = Annotated[str, AfterValidator(_whole_text)]
NoTools = Annotated[Any, BeforeValidator(_no_tools)]
PostedPrompt = Text | list[int]
NumTokens = Annotated[int, Field(ge=1, le=MAX_INT)]
"""Number of tokens of an answer. Values above the server's maximum are accepted, because clients
send larger defaults; ``make_requests`` lowers them.
"""
Seed = Annotated[
    int,
    Field(ge=-(2**63), le=2**63 - 1),
    AfterValidator(lambda seed: seed % NUM_SEEDS),
]
"""A seed. OpenAI allows all int64 values; they are reduced modulo NUM_SEEDS."""
MaxTokens = Annotated[
    NumTokens | None,
    BeforeValidator(_max_tokens),
    Field(description="maximum number of tokens in an answer; null or -1 for as many as fit"),
]
NumChoices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
NumRunnersUp = Annotated[int, Field(ge=0, le=MAX_RUNNERS_UP)]


Stops = Annotated[
    list[Text],
    BeforeValidator(_stops),
    Field(description=f"up to {MAX_STOPS} texts that end the answer"),
]


StopIds = Annotated[
    list[int],
    BeforeValidator(_stop_ids),
    Field(description=f"up to {MAX_STOPS} token ids that end the answer; their text is left out"),
]


class Body(BaseModel):
    """The JSON object of a request."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


class MessageBody(Body):
    """A message of a conversation."""

    role: Annotated[Role, BeforeValidator(_no_tool_role)]
    # Clients send back these fields of an earlier answer.
    id: Unused = None
    type: Unused = None
    status: Unused = None
    phase: Unused = None
    refusal: Unused = None
    annotations: Unused = None
    reasoning: Unused = None
    reasoning_content: Unused = None
    name: Unused = None
    tool_calls: NoTools = None
    function_call: NoTools = None
    content: Annotated[Text, BeforeValidator(_content)] = Field(
        description="a string, or a list of parts of type text; may be null for the assistant"
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_answer(cls, value: Any) -> Any:
        """Add empty content to an assistant message without content.

        The posted content may have been null: ``parse`` removes null fields.
        """
        if isinstance(value, dict) and value.get("role") == "assistant":
            return {"content": "", **value}
        return value


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool = False
    include_obfuscation: Unused = None
    continuous_usage_stats: Unused = None


class AnswerBody(Body):
    """Fields of the request body that chat and text completions have in common."""

    model: Text = Field(description="a model name from /v1/models")
    max_tokens: MaxTokens = RECOMMENDED.max_new_tokens
    max_completion_tokens: MaxTokens = RECOMMENDED.max_new_tokens
    n: NumChoices = Field(
        default=1,
        description="number of answers to each prompt; each has the seed of the one before plus 1",
    )
    best_of: NumChoices | None = Field(default=None, description="must equal n")
    tools: NoTools = Field(default=None, description="not supported")
    functions: NoTools = Field(default=None, description="not supported")
    stop: Stops = Field(default=[])
    stop_token_ids: StopIds = Field(default=[])
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class ChatFields(AnswerBody):
    """A conversation to answer."""

    messages: Annotated[list[MessageBody], BeforeValidator(_objects)] = Field(
        min_length=1, max_length=MAX_MESSAGES
    )
    continue_final_message: bool | None = Field(
        default=None,
        description="true to continue the last message, which must have the role assistant",
    )
    add_generation_prompt: bool | None = Field(
        default=None,
        description="false to end the prompt with the last message; true to begin a new answer "
        "even if the last message is an answer",
    )
    enable_thinking: bool | None = Field(
        default=None, description="same as enable_thinking in chat_template_kwargs"
    )
    chat_template_kwargs: dict[Text, Any] = Field(
        default={}, description="an object with variables of the model's chat template"
    )
    echo: Annotated[Any, BeforeValidator(_no_echo)] = False
    logprobs: bool = False
    top_logprobs: NumRunnersUp = 0


class TextFields(AnswerBody):
    """A text to continue."""

    prompt: Annotated[
        list[PostedPrompt],
        BeforeValidator(_prompts, json_schema_input_type=PostedPrompt | list[PostedPrompt]),
    ] = Field(description="a string, a list of token ids, or a list of either")
    echo: bool = Field(default=False, description="true to begin the answer with the prompt")
    parse_special: bool = Field(
        default=False,
        description="true to read the names of control tokens in a text as these tokens",
    )
    logprobs: NumRunnersUp | None = None


def only(values: tuple[Any, ...], value: Any) -> Any:
    """Return the value of an unsupported field if it is one of ``values``, which change nothing."""
    if not any(_is_same(value, neutral) for neutral in values):
        reject(UNSUPPORTED)
    return value


_TYPES = {
    **get_type_hints(DecodeSettings, include_extras=True),
    "seed": Seed,
    "logit_bias": Annotated[
        LogitBias, BeforeValidator(as_logit_bias, json_schema_input_type=dict[str, float])
    ],
}


def body_of(base: type[B], neutral: Mapping[str, tuple[Any, ...]]) -> type[B]:
    """Return ``base`` with the fields of the decoding settings and those without effect."""
    chosen: dict[str, Any] = {
        name: (
            _TYPES[name],
            Field(default=getattr(RECOMMENDED, name), description=SETTINGS[name]["description"]),
        )
        for name in SERVED
    }
    for name in set(HARMLESS) - set(base.model_fields):
        chosen[name] = (Unused, None)
    for name, values in neutral.items():
        shown = f"not supported, except {' or '.join(map(json.dumps, values))}"
        check = BeforeValidator(partial(only, values))
        chosen[name] = (Annotated[Any, check, Field(description=shown)], None)
    name = base.__name__.replace("Fields", "Body")
    return create_model(name, __base__=base, __doc__=base.__doc__, **chosen)


ChatBody = body_of(ChatFields, NEUTRAL)
TextBody = body_of(TextFields, {**NEUTRAL, "suffix": ("",)})


def parse(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a request body. Raises ApiError.

    Null fields are removed.
    """
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            parse_constant=_reject_constant,
            parse_float=_number,
            object_pairs_hook=_without_nulls,
        )
    except (ValueError, RecursionError):
        raise ApiError(400, NO_JSON) from None
    if not isinstance(value, dict):
        raise ApiError(400, NO_JSON)
    return value


def _number(text: str) -> float:
    """Return a number with a fraction or an exponent; as an int if it is whole, such as 6.0."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _without_nulls(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Remove null fields, which count as absent.

    Null token limits are not removed, because they mean as many tokens as fit.
    """
    return {name: value for name, value in pairs if value is not None or name in LIMITS}


def checked(model: type[B], values: dict[str, Any]) -> B:
    """Return the validated body. Raises ApiError for the first invalid field."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _field_error(model, error) from None


def _field_error(model: type[BaseModel], error: ValidationError) -> ApiError:
    """Return the error for the first invalid field.

    The message comes from the validator or is generated from the field's JSON schema.
    """
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] == "extra_forbidden":
        path = ".".join(map(str, fault["loc"]))
        field = path if len(path) <= MAX_NAME else f"{path[:MAX_NAME]}..."
        return ApiError(400, f"{field} {UNSUPPORTED}.", field)
    names, node = [], _schema(model)
    for part in fault["loc"]:
        inner = (
            node.get("items")
            if part in range(MAX_MESSAGES)
            else node.get("properties", {}).get(part)
        )
        inner = inner and _resolved(model, inner)
        if inner is None or (isinstance(part, int) and "properties" not in inner):
            break
        names.append(str(part))
        node = inner
    field = ".".join(names)
    if fault["type"] == "string_unicode":  # a name of a field, or a text
        return ApiError(400, NO_TEXT, field or None)
    if names[0] in SETTINGS:
        return ApiError(400, fault_of(error)[1], names[0])
    if fault["type"] == "sentence":
        return ApiError(400, fault["msg"], field)
    why = fault["msg"] if fault["type"] == "why" else f"must be {_expected(node)}"
    return ApiError(400, f"{field} {why}.", field)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _resolved(model: type[BaseModel], node: dict[str, Any]) -> dict[str, Any]:
    """Resolve a schema reference, and unwrap an optional type."""
    if {"type": "null"} in node.get("anyOf", []):
        node = node["anyOf"][0]
    name = node.get("$ref", "").rpartition("/")[2]
    return _schema(model)["$defs"][name] if name else node


def _expected(node: dict[str, Any]) -> str:
    if "enum" in node:
        return f"one of {', '.join(node['enum'])}"
    kind = node.get("type")
    if kind == "integer":
        return f"a whole number from {node['minimum']} to {node['maximum']}"
    if kind == "array" and "maxItems" in node:
        return f"a list of {node['minItems']} to {node['maxItems']} values"
    words = {"string": "a string", "boolean": "true or false", "object": "an object"}
    return words.get(str(kind)) or str(node["description"])


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A parsed and validated request for a completion.

    prompts: each is a conversation, a text, or token ids.
    options: keyword arguments of ``encode_chat`` or ``encode_text`` for them.
    max_tokens: None if absent, UP_TO_LIMIT for as many as fit.
    num_choices: number of answers per prompt.
    has_echo: whether answers begin with the prompt.
    num_runners_up: number of alternatives per token to return; None for no logprobs.
    has_usage: whether a stream ends with a chunk that contains the usage.
    field: name of the field that contains the prompts, for error messages.
    """

    kind: Kind
    model: str
    prompts: tuple[Prompt, ...]
    options: Mapping[str, Any]
    settings: DecodeSettings
    max_tokens: int | None
    stops: tuple[str, ...]
    stop_ids: frozenset[int]
    num_choices: int
    has_echo: bool
    num_runners_up: int | None
    is_stream: bool
    has_usage: bool
    field: str


def read_completion(kind: Kind, body: bytes) -> CompletionRequest:
    """Parse a request for a completion. Raises ApiError."""
    return completion_of(kind, parse(body))


def completion_of(kind: Kind, posted: dict[str, Any], field: str = "") -> CompletionRequest:
    """Validate the fields of a body and build the request. Raises ApiError.

    field: the name of the prompt's field in error messages, if ``posted`` was translated from
    another API; by default "messages" or "prompt".
    """
    fields: ChatFields | TextFields = checked(ChatBody if kind == "chat" else TextBody, posted)
    settings = _settings(fields)
    prompts: tuple[Prompt, ...]
    if isinstance(fields, ChatFields):
        prompts = (tuple((ROLES[said.role], said.content) for said in fields.messages),)
        options = _template_options(fields)
    else:
        prompts = tuple(map(_text_or_ids, fields.prompt))
        options = {"parse_special": fields.parse_special}
    _check_choices(fields, len(prompts))
    return CompletionRequest(
        kind,
        fields.model,
        prompts,
        options,
        settings,
        _num_tokens(fields),
        tuple(fields.stop),
        frozenset(fields.stop_token_ids),
        fields.n,
        isinstance(fields, TextFields) and fields.echo,
        _num_runners_up(fields, settings),
        fields.stream,
        fields.stream_options.include_usage,
        field or ("messages" if kind == "chat" else "prompt"),
    )


def _check_choices(body: AnswerBody, num_prompts: int) -> None:
    """Raise ApiError if there would be too many answers, or ``best_of`` differs from ``n``."""
    if body.best_of not in (None, body.n):
        raise ApiError(400, f"best_of must equal n, got {body.best_of} and {body.n}.", "best_of")
    if body.n * num_prompts > MAX_CHOICES:
        sentence = (
            f"n times the number of prompts must be at most {MAX_CHOICES}, got {body.n} times "
            f"{num_prompts}."
        )
        raise ApiError(400, sentence, "n")


def _is_same(value: object, neutral: object) -> bool:
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _settings(body: AnswerBody) -> DecodeSettings:
    settings = changed(RECOMMENDED, body, SERVED)
    if settings.temperature and "seed" not in body.model_fields_set:
        settings = replace(settings, seed=secrets.randbelow(NUM_SEEDS))
    return settings


def changed(settings: DecodeSettings, body: Body, names: Iterable[str]) -> DecodeSettings:
    """Return the settings, changed by the fields ``names`` that were posted. Raises ApiError."""
    chosen = {name: getattr(body, name) for name in names if name in body.model_fields_set}
    try:
        return replace(settings, **chosen)
    except SettingsError as error:
        raise ApiError(400, str(error), error.field) from None


def _template_options(body: ChatFields) -> dict[str, Any]:
    """Return the keyword arguments of ``encode_chat``. By default a last answer is continued."""
    last = body.messages[-1].role
    if last not in ("user", "assistant"):
        raise ApiError(400, LAST, "messages")
    is_continued = body.continue_final_message
    if is_continued is None:
        is_continued = last == "assistant" and body.add_generation_prompt is None
    if is_continued and last != "assistant":
        raise ApiError(400, FINAL, "continue_final_message")
    if is_continued and body.add_generation_prompt:
        raise ApiError(400, BOTH, "continue_final_message")
    for name in RESERVED.intersection(body.chat_template_kwargs):
        raise ApiError(400, OWN_FIELD.format(name), "chat_template_kwargs")
    options = {**body.chat_template_kwargs, "continue_final_message": is_continued}
    for name in ("add_generation_prompt", "enable_thinking"):
        if (value := getattr(body, name)) is not None:
            options[name] = value
    return options


def _text_or_ids(prompt: str | list[int]) -> str | tuple[int, ...]:
    return prompt if isinstance(prompt, str) else tuple(prompt)


def _num_tokens(body: AnswerBody) -> int | None:
    posted = [getattr(body, name) for name in LIMITS if name in body.model_fields_set]
    numbers = [number for number in posted if number is not None]
    if numbers:
        return int(numbers[0])
    return UP_TO_LIMIT if posted else None


def _num_runners_up(body: AnswerBody, settings: DecodeSettings) -> int | None:
    number = body.logprobs if isinstance(body, TextFields) else None
    if isinstance(body, TextFields) and body.echo and number is not None:
        raise ApiError(400, ECHO_LOGPROBS, "echo")
    if isinstance(body, ChatFields):
        number = body.top_logprobs if body.logprobs else None
        if body.top_logprobs and number is None:
            raise ApiError(400, "top_logprobs requires logprobs to be true.", "top_logprobs")
    if number is not None and settings.metric != "probability":
        raise ApiError(400, NEEDS_PROBABILITY, "logprobs")
    return number


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits that protect the server.

    max_new_tokens: maximum number of tokens in an answer.
    max_seconds: time from submission after which an answer is ended and returned as it is.
    max_body_bytes: maximum size of a request's body.
    max_runs_per_address: maximum number of running and queued runs; 0 for no limit.
    max_prompt_chars: maximum length of a text or of one message; 0 for no limit.
    keep_alive_seconds: time after which a stream without news sends a comment, so that proxies do
        not close it.
    """

    max_new_tokens: int = MAX_NEW_TOKENS
    max_seconds: float = 300.0
    max_body_bytes: int = 1_048_576
    max_runs_per_address: int = 0
    max_prompt_chars: int = 0
    keep_alive_seconds: float = 3.0


DEFAULT_CAPS = Caps()


def make_requests(
    completion: CompletionRequest, model: ServedModel, caps: Caps
) -> list[list[Request]]:
    """Return, for each prompt, one engine request per answer. Raises ApiError or RequestError.

    A token limit above the server's maximum is lowered to the maximum, or to what fits after the
    prompt if that is less. The answer then contains a note.
    """
    check_depth(completion.settings, model.block_size)
    check_bias(completion.settings, model.tokenizer)
    most = min(caps.max_new_tokens, MAX_NEW_TOKENS)
    requests: list[list[Request]] = []
    for prompt in completion.prompts:
        check_prompt(prompt, model.tokenizer, caps.max_prompt_chars, completion.field)
        try:
            ids = _encode(prompt, completion.options, model.tokenizer)
        except TextError as error:
            raise ApiError(400, str(error), completion.field) from None
        number = completion.max_tokens
        if number in (None, UP_TO_LIMIT) or number > most:
            default = RECOMMENDED.max_new_tokens if number is None else most
            number = max(1, min(default, most, model.capacity - len(ids)))
        request = Request(
            ids,
            replace(completion.settings, max_new_tokens=number),
            caps.max_seconds,
            has_reader=True,
        )
        requests.append([_of_choice(request, index) for index in range(completion.num_choices)])
    return requests


def _of_choice(request: Request, index: int) -> Request:
    """Return the request for answer number ``index`` to a prompt, with its own seed."""
    seed = (request.settings.seed + index) % NUM_SEEDS
    return replace(request, settings=replace(request.settings, seed=seed))


def check_prompt(prompt: Prompt, tokenizer: Tokenizer, most: int, field: str) -> None:
    """Raise ApiError if a text, or a message of a conversation, is too long.

    most: maximum number of characters; 0 for no limit. field: the field, for the error message.
    """
    if not most:
        return
    if isinstance(prompt, str):
        texts = [prompt]
    elif isinstance(prompt[0], tuple):
        texts = [str(content) for _, content in prompt]
    else:
        texts = [tokenizer.decode(check_ids(prompt, tokenizer))]
    longest = max(map(len, texts))
    if longest > most:
        sentence = f"Shorten the prompt to at most {most:,} characters, got {longest:,}."
        raise ApiError(400, sentence, field)


def check_depth(settings: DecodeSettings, depth: int) -> None:
    """Raise ApiError if B is above ``depth``, the largest B that the model was trained with."""
    if isinstance(settings.block_size, int) and settings.block_size > depth:
        sentence = f"Choose a B of at most {depth}, this checkpoint's trained depth."
        raise ApiError(400, sentence, "block_size")


def check_bias(settings: DecodeSettings, tokenizer: Tokenizer) -> None:
    """Raise ApiError if ``logit_bias`` contains a token id that the model does not have."""
    highest = max((token for token, _ in settings.logit_bias), default=-1)
    if highest >= tokenizer.size:
        raise ApiError(400, BIASED_TOKENS.format(tokenizer.size, highest), "logit_bias")


def check_ids(ids: Sequence[Any], tokenizer: Tokenizer) -> list[int]:
    """Return ``ids`` if they are allowed in a prompt; the mask token is not allowed.

    Raises ApiError.
    """
    size, mask = tokenizer.size, tokenizer.mask_id
    if any(type(token) is not int or not 0 <= token < size or token == mask for token in ids):
        raise ApiError(400, FOREIGN_IDS, "prompt")
    return list(ids)


def _encode(prompt: Prompt, options: Mapping[str, Any], tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        return check_ids(tokenizer.encode_text(prompt, **options), tokenizer)
    if not isinstance(prompt[0], tuple):
        return check_ids(prompt, tokenizer)
    *before, (role, content) = conversation = prompt
    if role == "assistant":
        return tokenizer.encode_chat(conversation, **options)
    return tokenizer.encode_prompt(str(content), before=before, options=options)
