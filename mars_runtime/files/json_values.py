"""Types of dataclass fields by which pydantic validates untrusted JSON, with error messages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from reprlib import repr as shown
from typing import Annotated, Any, cast

from pydantic import FailFast, Field, PlainValidator, Strict, ValidationError
from pydantic_core import ErrorDetails

MAX_INT = 2**31 - 1
MAX_SECONDS = 1e9  # the square of which is finite
NO_LIST = "expected a list that is not too long"
NO_OBJECT = "expected an object"
NO_TEXT = "expected a string"
NO_WHOLE = "expected a whole number within its range"


def json_line(value: Any) -> str:
    """ASCII, because many clients treat U+0085, U+2028 and U+2029 as line breaks."""
    return json.dumps(value, separators=(",", ":"))


def as_mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(NO_OBJECT)
    return value


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(NO_TEXT)
    return value


def is_text(text: str) -> bool:
    """Return whether UTF-8 can encode the text. Text from JSON may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(NO_LIST)
    return value


def as_real(value: Any) -> float:
    """Return a finite number; an int stays an int. Raises ValueError or OverflowError."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("expected a finite number")
    return cast(float, value)


def as_seconds(value: Any) -> float:
    """Raises ValueError or OverflowError outside 0 to MAX_SECONDS."""
    seconds = as_real(value)
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"seconds must be between 0 and {MAX_SECONDS:g}")
    return seconds


Whole = Annotated[int, Strict(), Field(ge=0, le=MAX_INT)]
Truth = Annotated[bool, Strict()]
Real = Annotated[float, PlainValidator(as_real, json_schema_input_type=float)]
Seconds = Annotated[float, PlainValidator(as_seconds, json_schema_input_type=float)]
FIRST = FailFast()
"""Annotation for lists: validation stops at the first invalid value."""


def fault_of(error: ValidationError) -> tuple[str, str]:
    """Return the path of the first invalid field, and one sentence that says what is wrong."""
    first, *others = error.errors(include_url=False)
    faults, place = [first], first["loc"]
    for other in others:  # each alternative of a union has an error of its own about the same value
        if len(place) > 1 and other["loc"][:-1] == place[:-1] and other["input"] is first["input"]:
            faults.append(other)
    path = ".".join(map(str, place[:-1] if faults[1:] else place))
    return path, sentence_of(path, faults)


def sentence_of(path: str, faults: Sequence[ErrorDetails]) -> str:
    """faults: an error for each alternative of the field's type."""
    first = faults[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"{path} is missing."
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{path} is not supported. Remove it."
    wanted, *more = dict.fromkeys(map(_expected, faults))
    alternatives = "".join(f", or {other.removeprefix('be ')}" for other in more)
    return f"{path} must {wanted}{alternatives}, got {shown(first['input'])}."


def _expected(fault: ErrorDetails) -> str:
    expected = fault["msg"].partition(" should ")[2] or "be valid"
    return re.split(", unable| after validation", expected)[0]
