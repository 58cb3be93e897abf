"""Types and functions that validate untrusted JSON values, with their error messages.

Dataclasses use the types for their fields, and pydantic validates the values.
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
NO_TEXT = "expected a string"
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
"""Error type of pydantic -> message. ``words`` uses NO_LIST for all other error types."""


def json_line(value: Any) -> str:
    """Return a value as one line of JSON, with all characters outside ASCII escaped.

    JSON allows U+0085, U+2028 and U+2029 in strings, but many clients treat them as line breaks.
    """
    return json.dumps(value, separators=(",", ":"))


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object. Raises ValueError for other types."""
    if not isinstance(value, dict):
        raise ValueError(NO_OBJECT)
    return value


def as_text(value: Any) -> str:
    """Return the value if it is a string. Raises ValueError for other types."""
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
    """Return the value if it is a list. Raises ValueError for other types."""
    if not isinstance(value, list):
        raise ValueError(NO_LIST)
    return value


def as_real(value: Any) -> float:
    """Return the value if it is a finite number; an int stays an int.

    Raises ValueError for other values, and OverflowError for a huge int.
    """
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("expected a finite number")
    return cast(float, value)


def as_seconds(value: Any) -> float:
    """Return the value if it is a finite number of at least 0.

    Raises ValueError for other values, and OverflowError for a huge int.
    """
    seconds = as_real(value)
    if seconds < 0:
        raise ValueError("seconds cannot be negative")
    return seconds


Whole = Annotated[int, Strict(), Field(ge=0, le=MAX_INT)]
Truth = Annotated[bool, Strict()]
Real = Annotated[float, PlainValidator(as_real, json_schema_input_type=float)]
Seconds = Annotated[float, PlainValidator(as_seconds, json_schema_input_type=float)]
FIRST = FailFast()
"""Annotation for lists: validation stops at the first invalid value."""


def words(error: ValidationError) -> str:
    """Return a message for the first error that pydantic found, without the full stop."""
    first = error.errors(include_url=False, include_input=False)[0]
    error_type, field = first["type"], first["loc"][-1] if first["loc"] else ""
    if error_type == "value_error":
        return str(first["ctx"]["error"]).rstrip(".")
    if error_type == "literal_error":
        choices = re.findall(r"'(\w+)'", first["ctx"]["expected"])
        return f"expected one of {', '.join(choices)}"
    if error_type == "missing" and isinstance(field, str):
        return f"{field!r} is missing"
    return SENTENCES.get(error_type, NO_LIST)
