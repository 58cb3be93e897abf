"""The fields of a posted JSON object, each of its kind or refused in one sentence.

As in OpenAI's API null means absent. Knows no field by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from mars_runtime.serving.errors import ApiError

NO_JSON = "Send one JSON object in UTF-8, with numbers that are finite."
NO_TEXT = "Remove the characters that are no valid text."
_HALF = re.compile("[\ud800-\udfff]")  # JSON can spell it, no answer, log or file can hold it


def parse(body: bytes) -> Fields:
    """The object that a request brings. Raises ApiError."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ApiError(400, NO_JSON) from None
    if not isinstance(value, dict):
        raise ApiError(400, NO_JSON)
    return Fields(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


class Fields:
    """Reads an object field by field. Every reader raises ApiError, which names the field."""

    def __init__(self, values: Mapping[str, Any], inside: str = "") -> None:
        """inside: what stands before the names of the fields when they are told."""
        self._values = values
        self._inside = inside

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Its value, None where it is absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """A text, which has to be there."""
        value = self.raw(name)
        if not isinstance(value, str):
            self.refuse(name, "must be a text")
        return checked_text(value, name)

    def truth(self, name: str, default: bool = False) -> bool:
        """true or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, "must be true or false")
        return value

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number, or None."""
        value = self.raw(name)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}")
        return value

    def items(self, name: str, most: int) -> list[Any]:
        """A list of at most ``most`` values, which has to be there and to hold something."""
        value = self.raw(name)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            self.refuse(name, f"must be a list of 1 to {most} values")
        return value

    def inner(self, name: str) -> Fields:
        """An object in it; an empty one where it is absent."""
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(name, "must be an object")
        return Fields(value or {}, f"{self._inside}{name}.")

    def refuse(self, name: str, why: str) -> NoReturn:
        """Say what is wrong with a field, as in: must be a text."""
        field = f"{self._inside}{name}"
        raise ApiError(400, f"{field} {why}.", field)


def checked_text(value: str, field: str) -> str:
    """The text, whose every character UTF-8 can hold. Raises ApiError."""
    if _HALF.search(value):
        raise ApiError(400, NO_TEXT, field)
    return value
