"""What may be posted: each body is a model of pydantic, which checks it and describes it in the
OpenAPI document. Settings of decoding come from their table; a refusal is one sentence.

As in OpenAI's API null means absent, and unknown fields are passed over. Knows no engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
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
from mars_runtime.engine.request import MAX_DEADLINE
from mars_runtime.serving.errors import ApiError
from mars_runtime.settings import MAX_NEW_TOKENS, RECOMMENDED, SETTINGS, STEERED

NO_JSON = "Send one JSON object in UTF-8, with numbers that are finite."
NO_TEXT = "Remove the characters that are no valid text."
MAX_MESSAGES, MAX_PARTS = 1000, 100
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
        is_text = isinstance(part, dict) and part.get("type") == "text"
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
    stop: Annotated[list[Text], BeforeValidator(_stops)] = Field(
        default=[], description="up to 4 texts at which the answer ends"
    )
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


class SteerFields(Body):
    """What is to act from the next forward on."""

    lane: Any = None
    pace: Any = None
    max_new_tokens: Any = None


def _with_settings(base: type[B], names: Collection[str], *, is_change: bool = False) -> type[B]:
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


ChatBody = _with_settings(ChatFields, SERVED)
TextBody = _with_settings(TextFields, SERVED)
LaneBody = _with_settings(LaneFields, (*SERVED, "max_new_tokens"))
SteerBody = _with_settings(SteerFields, STEERED, is_change=True)


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
            body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_without_nulls
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
