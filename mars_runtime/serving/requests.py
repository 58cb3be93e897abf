"""What is asked of the endpoint: bodies as posted, checked, and as requests of a model's engine.

Each body is a model of pydantic, which checks it and describes it in the OpenAPI document. Settings
of decoding come from their table; a refusal is one sentence. As in OpenAI's API null means absent.
Unknown fields, and those that change nothing, are passed over; what this server cannot do is
refused where leaving it out would change the answer.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticCustomError

from mars_runtime.engine.base import MAX_LANES
from mars_runtime.engine.request import MAX_DEADLINE, Request
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import Model
from mars_runtime.settings import (
    MAX_NEW_TOKENS,
    RECOMMENDED,
    SETTINGS,
    STEERED,
    DecodeSettings,
    SettingsError,
)
from mars_runtime.text import Said, Tokenizer

NO_JSON = "Send one JSON object in UTF-8, with numbers that are finite."
NO_TEXT = "Remove the characters that are no valid text."
MAX_MESSAGES, MAX_PARTS = 1000, 100
TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of the parts of a message that hold text, in chats and in the Responses API."""
MAX_STOPS, MAX_STOP_CHARS = 4, 200
MAX_RUNNERS_UP = 3  # that events carry
SERVED = (
    *(name for name, line in SETTINGS.items() if line.link and name != "max_new_tokens"),
    "method",
)
"""Settings that programs may choose, by whose names OpenAI's own are among them. The method comes
last: what it needs of B is judged by the B that is asked for."""
_HALF = re.compile("[\ud800-\udfff]")  # JSON can spell it, no answer, log or file can hold it
Role = Literal["system", "developer", "user", "assistant"]
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
B = TypeVar("B", bound=BaseModel)


def refuse(why: str) -> NoReturn:
    """What is wrong with a field, as in: must be a text."""
    raise PydanticCustomError("why", "{why}", {"why": why})


def _whole_text(value: str) -> str:
    """The text, whose every character UTF-8 can hold."""
    if _HALF.search(value):
        raise PydanticCustomError("sentence", NO_TEXT)
    return value


def _content(value: Any) -> Any:
    """A text, or the parts of one."""
    if not isinstance(value, list):
        return value
    if not 1 <= len(value) <= MAX_PARTS:
        refuse(f"must be a list of 1 to {MAX_PARTS} values")
    for part in value:
        is_text = isinstance(part, dict) and part.get("type") in TEXT_PARTS
        if not is_text or not isinstance(part.get("text"), str):
            refuse("must be a text, or parts of the type text")
    return "".join(part["text"] for part in value)


def _objects(value: Any) -> Any:
    if isinstance(value, list) and not all(isinstance(each, dict) for each in value):
        refuse("must hold objects with role and content")
    return value


def _no_tools(value: Any) -> Any:
    return refuse("are not supported here: leave them out") if value else value


def _prompt(value: Any) -> Any:
    """A text or token ids, or a list with a single one of either."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        (value,) = value
    is_ids = isinstance(value, list) and value and all(type(token) is int for token in value)
    if isinstance(value, str) or is_ids:
        return value
    if isinstance(value, list) and len(value) > 1:
        refuse("must be one: send a request for each, they share forwards anyhow")
    return refuse("must be a text or a list of token ids")


def _stops(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        refuse(f"must be a list of 1 to {MAX_STOPS} values")
    if not all(isinstance(stop, str) and 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
        refuse(f"must be texts of 1 to {MAX_STOP_CHARS} characters")
    return stops


Text = Annotated[str, AfterValidator(_whole_text)]
NumTokens = Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)]
NumRunnersUp = Annotated[int, Field(ge=0, le=MAX_RUNNERS_UP)]


Stops = Annotated[
    list[Text],
    BeforeValidator(_stops),
    Field(description=f"up to {MAX_STOPS} texts at which the answer ends"),
]


class Body(BaseModel):
    """A posted object."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Message(Body):
    """One of a conversation."""

    role: Role
    tool_calls: Annotated[Any, BeforeValidator(_no_tools)] = None
    content: Annotated[Text, BeforeValidator(_content)] = Field(
        description="a text, or parts of the type text"
    )


class StreamOptions(Body):
    """What a stream tells beside text."""

    include_usage: bool = False


class AnswerBody(Body):
    """What both ways of asking for an answer share."""

    model: Text = Field(description="a name of /v1/models")
    max_tokens: NumTokens = RECOMMENDED.max_new_tokens
    max_completion_tokens: NumTokens = RECOMMENDED.max_new_tokens
    stop: Stops = Field(default=[])
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class ChatFields(AnswerBody):
    """A conversation whose next answer is asked for."""

    messages: Annotated[list[Message], BeforeValidator(_objects)] = Field(
        min_length=1, max_length=MAX_MESSAGES
    )
    logprobs: bool = False
    top_logprobs: NumRunnersUp = 0


class TextFields(AnswerBody):
    """A text that is gone on with as it is."""

    prompt: Annotated[Text | list[int], BeforeValidator(_prompt)] = Field(
        description="a text or a list of token ids"
    )
    logprobs: NumRunnersUp | None = None


class LaneFields(Body):
    """One of the runs that begin together, by the ids of its prompt."""

    prompt_ids: list[Any] = Field(description="a list of token ids")
    seconds: Annotated[int, Field(ge=1, le=int(MAX_DEADLINE))] | None = None
    is_checked: bool = False
    reuses: bool = True


class SteerFields(Body):
    """What is to act from the next forward on."""

    lane: Any = None
    pace: Any = None
    max_new_tokens: Any = None


def with_settings(base: type[B], names: Collection[str], *, is_change: bool = False) -> type[B]:
    """The body with these settings of the table. is_change: what is left out stays as it is."""
    lines = {name: SETTINGS[name] for name in names}
    chosen: dict[str, Any] = {
        name: (
            line.schema_type,
            Field(default=None if is_change else getattr(RECOMMENDED, name), description=line.says),
        )
        for name, line in lines.items()
    }
    name = base.__name__.replace("Fields", "Body")
    return create_model(name, __base__=base, __doc__=base.__doc__, **chosen)


ChatBody = with_settings(ChatFields, SERVED)
TextBody = with_settings(TextFields, SERVED)
LaneBody = with_settings(LaneFields, (*SERVED, "max_new_tokens"))
SteerBody = with_settings(SteerFields, STEERED, is_change=True)


def _lane(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


class RunBody(Body):
    """Runs that begin together."""

    model: Text = Field(description="a name of /v1/models")
    lanes: list[Annotated[LaneBody, BeforeValidator(_lane)]] = Field(  # type: ignore[valid-type]
        min_length=1, max_length=MAX_LANES
    )
    pace: Any = 0.0
    is_alone: bool = False


def read(model: type[B], body: bytes) -> B:
    """What a request brings. Raises ApiError."""
    return checked(model, parse(body))


def parse(body: bytes) -> dict[str, Any]:
    """The object that a request brings, without what is null. Raises ApiError."""
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_nulls,
        )
    except (ValueError, RecursionError):
        raise ApiError(400, NO_JSON) from None
    if not isinstance(value, dict):
        raise ApiError(400, NO_JSON)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _without_nulls(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def checked(model: type[B], values: dict[str, Any]) -> B:
    """The values as this body. Raises ApiError."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _refusal(model, error) from None


def whole(value: object, name: str, least: int, most: int) -> int | None:
    """A whole number whose range depends on what goes on, or None. Raises ApiError."""
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise ApiError(400, f"{name} must be a whole number from {least} to {most}.", name)
    return value


def _refusal(model: type[BaseModel], error: ValidationError) -> ApiError:
    """The first of what is wrong, as the schema of its field has it."""
    fault = error.errors(include_url=False, include_input=False)[0]
    names, node = [], _schema(model)
    for part in fault["loc"]:
        inner = (
            node["items"] if part in range(MAX_MESSAGES) else node.get("properties", {}).get(part)
        )
        inner = inner and _resolved(model, inner)
        if inner is None or (isinstance(part, int) and "properties" not in inner):
            break
        names.append(str(part))
        node = inner
    field = ".".join(names)
    if names[-1] in SETTINGS:
        return ApiError(400, SETTINGS[names[-1]].refusal, names[-1])
    if fault["type"] == "sentence":
        return ApiError(400, fault["msg"], field)
    why = fault["msg"] if fault["type"] == "why" else f"must be {_wanted(node)}"
    return ApiError(400, f"{field} {why}.", field)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _resolved(model: type[BaseModel], node: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for, or a type that may be left out."""
    if {"type": "null"} in node.get("anyOf", []):
        node = node["anyOf"][0]
    name = node.get("$ref", "").rpartition("/")[2]
    return _schema(model)["$defs"][name] if name else node


def _wanted(node: dict[str, Any]) -> str:
    if "enum" in node:
        return f"one of {', '.join(node['enum'])}"
    kind = node.get("type")
    if kind == "integer":
        return f"a whole number from {node['minimum']} to {node['maximum']}"
    if kind == "array" and "maxItems" in node:
        return f"a list of {node['minItems']} to {node['maxItems']} values"
    words = {"string": "a text", "boolean": "true or false", "object": "an object"}
    return words.get(str(kind)) or str(node["description"])


@dataclass(frozen=True, slots=True)
class Completion:
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


def read_completion(kind: Kind, body: bytes) -> Completion:
    """The request. Raises ApiError."""
    return completion_of(kind, parse(body))


def completion_of(kind: Kind, posted: dict[str, Any]) -> Completion:
    """Return the request that these fields make. Raises ApiError."""
    for name, neutral in NEUTRAL.items():
        if name in posted and not any(_is_same(posted[name], each) for each in neutral):
            raise ApiError(400, f"{name} is not supported here: leave it out.", name)
    asked: ChatFields | TextFields = checked(ChatBody if kind == "chat" else TextBody, posted)
    settings = _settings(asked)
    return Completion(
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


@dataclass(frozen=True, slots=True)
class Caps:
    """What keeps a server alive. max_new_tokens: of an answer; max_seconds: from submission to its
    end, then it ends as it is; max_body_bytes: larger requests are refused unread;
    max_runs_per_address: of one address at once, waiting ones included, 0 for any number."""

    max_new_tokens: int = MAX_NEW_TOKENS
    max_seconds: float = 300.0
    max_body_bytes: int = 1_048_576
    max_runs_per_address: int = 0


DEFAULT_CAPS = Caps()


def make_request(asked: Completion, model: Model, caps: Caps) -> Request:
    """What to submit. Raises ApiError, TextError or RequestError."""
    number, limit = asked.max_tokens, caps.max_new_tokens
    if number is not None:
        check_length(number, limit)
    check_depth(asked.settings, model.block_size)
    ids = _encode(asked, model.tokenizer)
    if number is None:  # as many as fit, up to the recommended length
        number = max(1, min(RECOMMENDED.max_new_tokens, limit, model.capacity - len(ids)))
    return Request(ids, replace(asked.settings, max_new_tokens=number), caps.max_seconds)


def check_length(num_tokens: int, most: int) -> None:
    """Raises ApiError for an answer that may not be so long."""
    if num_tokens > most:
        raise ApiError(400, f"Ask for at most {most} tokens here.", "max_tokens")


def check_depth(settings: DecodeSettings, depth: int) -> None:
    """Raises ApiError for more proposals than the checkpoint was trained for."""
    if isinstance(settings.block_size, int) and settings.block_size > depth:
        sentence = f"Choose a B of at most {depth}, this checkpoint's trained depth."
        raise ApiError(400, sentence, "block_size")


def check_ids(ids: Sequence[Any], tokenizer: Tokenizer) -> list[int]:
    """The ids, where they are tokens that a prompt may hold. Raises ApiError."""
    size, never = tokenizer.size, tokenizer.mask_id
    if any(type(token) is not int or not 0 <= token < size or token == never for token in ids):
        raise ApiError(400, "The prompt holds tokens that are no text of this model.", "prompt")
    return list(ids)


def _encode(asked: Completion, tokenizer: Tokenizer) -> list[int]:
    if asked.kind == "chat":
        *before, (_, text) = (_in_tokens(each, tokenizer) for each in asked.prompt)  # type: ignore[arg-type]
        return tokenizer.encode_prompt(str(text), before=before)
    if isinstance(asked.prompt, str):
        return tokenizer.encode(asked.prompt)
    return check_ids(asked.prompt, tokenizer)


def _in_tokens(said: Said, tokenizer: Tokenizer) -> Said:
    """Answers in tokens, cut as the model writes them: a prompt then begins with what is kept of
    the turn before."""
    role, content = said
    is_answer = role == "assistant" and isinstance(content, str)
    return (role, tokenizer.encode(str(content))) if is_answer else said
