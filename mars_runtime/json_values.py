"""Types for untrusted JSON values, and error messages for invalid ones.

Dataclasses use them as types of their fields, and pydantic validates them.
"""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any, cast

from pydantic import FailFast, Field, PlainValidator, Strict, ValidationError

MAX_INT = 2**31 - 1
NO_LIST = "expected a list that is not too long"
NO_OBJECT = "expected an object"
NO_TEXT = "expected a text"
NO_WHOLE = "expected a whole number within its range"
SENTENCES = {
    "int_type": NO_WHOLE,
    "greater_than_equal": NO_WHOLE,
    "less_than_equal": NO_WHOLE,
    "string_type": NO_TEXT,
    "bool_type": "expected true or false",
    "dict_type": NO_OBJECT,
    "dataclass_type": NO_OBJECT,
}
"""Messages for pydantic's error types; errors about lists are all NO_LIST."""


def json_line(value: Any) -> str:
    """Return a value as one line of JSON in ASCII.

    Many clients split streams by every line break of Unicode. JSON may hold U+0085, U+2028 and
    U+2029 as they are, so each character outside ASCII is escaped.
    """
    return json.dumps(value, separators=(",", ":"))


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value as a JSON object. Raises ValueError if it is another type."""
    if not isinstance(value, dict):
        raise ValueError(NO_OBJECT)
    return value


def as_text(value: Any) -> str:
    """Return a string. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(NO_TEXT)
    return value


def is_text(text: str) -> bool:
    """Return whether the text can be encoded: JSON can hold lone surrogates, UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_list(value: Any) -> list[Any]:
    """Return a list. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(NO_LIST)
    return value


def as_real(value: Any) -> float:
    """Return a finite number unchanged: 1 stays an int. Raises ValueError, or OverflowError."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("expected a finite number")
    return cast(float, value)


def as_seconds(value: Any) -> float:
    """Return a number of seconds that is not negative. Raises ValueError, or OverflowError."""
    seconds = as_real(value)
    if seconds < 0:
        raise ValueError("seconds cannot be negative")
    return seconds


Whole = Annotated[int, Strict(), Field(ge=0, le=MAX_INT)]
Truth = Annotated[bool, Strict()]
Real = Annotated[float, PlainValidator(as_real, json_schema_input_type=float)]
Seconds = Annotated[float, PlainValidator(as_seconds, json_schema_input_type=float)]
FIRST = FailFast()
"""For lists: stop at the first invalid value."""


def words(error: ValidationError) -> str:
    """Return the message of the first error, without the full stop."""
    fault = error.errors(include_url=False, include_input=False)[0]
    kind, place = fault["type"], fault["loc"][-1] if fault["loc"] else ""
    if kind == "value_error":
        return str(fault["ctx"]["error"]).rstrip(".")
    if kind == "literal_error":
        choices = re.findall(r"'(\w+)'", fault["ctx"]["expected"])
        return f"expected one of {', '.join(choices)}"
    if kind == "missing" and isinstance(place, str):
        return f"{place!r} is missing"
    return SENTENCES.get(kind, NO_LIST)
