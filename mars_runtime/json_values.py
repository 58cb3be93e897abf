"""Values of JSON from anybody, each of the kind and size that is expected or refused in words."""

from __future__ import annotations

import math
from typing import Any, cast

MAX_INT = 2**31 - 1


def as_mapping(value: Any) -> dict[str, Any]:
    """An object. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("an object is expected")
    return value


def as_items(value: Any, most: int) -> list[Any]:
    """A list of at most ``most`` values. Raises ValueError."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list is missing, or too long")
    return value


def as_text(value: Any) -> str:
    """A text. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("a text is expected")
    return value


def one_of(value: Any, choices: tuple[str, ...]) -> str:
    """One of these words. Raises ValueError."""
    if value not in choices:
        raise ValueError(f"one of {', '.join(choices)} is expected")
    return str(value)


def as_whole(value: Any, most: int = MAX_INT) -> int:
    """A whole number from 0 on, at most ``most``. Raises ValueError."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("a whole number is missing, or out of range")
    return value


def as_truth(value: Any) -> bool:
    """true or false. Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError("true or false is expected")
    return value


def as_real(value: Any) -> float:
    """A finite number. Raises ValueError."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("a finite number is expected")
    return cast(float, value)


def as_seconds(value: Any) -> float:
    """A time that is not negative. Raises ValueError."""
    seconds = as_real(value)
    if seconds < 0:
        raise ValueError("seconds cannot be negative")
    return seconds
