"""Constraints a text can be checked for: items, case, commas, JSON, first and last words.

Knows no prompt; a constraint is a name and a value, so that it can be written as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def _bare(item: str) -> str:
    item = re.sub(r"^\s*(?:[-*]|\d+[.)])\s*", "", item)
    return item.strip(" .!\"'").lower()


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", text)


def bullets(text: str, count: int) -> bool:
    lines = _lines(text)
    return len(lines) == count and all(re.match(r"[-*] \S", line) for line in lines)


def numbered(text: str, count: int) -> bool:
    lines = _lines(text)
    marks = [re.match(r"(\d+)[.)] \S", line) for line in lines]
    return [int(mark[1]) if mark else 0 for mark in marks] == list(range(1, count + 1))


def separated(text: str, value: list[object]) -> bool:
    mark, count = str(value[0]), value[1]
    parts = [part.strip() for part in text.strip().split(mark)]
    return len(parts) == count and all(parts) and len(_lines(text)) == 1


def members(text: str, known: list[str]) -> bool:
    """Every item is known and none comes twice, whatever separates them."""
    parts = [_bare(part) for part in re.split(r"[\n;|/]+", text.strip())]
    parts = [part for part in parts if part]
    return bool(parts) and len(set(parts)) == len(parts) and all(part in known for part in parts)


def json_object(text: str, value: dict[str, object]) -> bool:
    match = re.fullmatch(r"\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*", text, re.DOTALL)
    return bool(match) and json.loads(match[1]) == value  # type: ignore[index]


def equals(text: str, value: str) -> bool:
    return text.strip() == value


def upper(text: str, value: bool) -> bool:
    return text.isupper() == value


def lower(text: str, value: bool) -> bool:
    return text.islower() == value


def no_commas(text: str, value: bool) -> bool:
    return ("," not in text) == value


def mentions(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def sentences(text: str, count: int) -> bool:
    parts = [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]
    closed = all(part[-1] in ".!?" and len(_words(part)) >= 3 for part in parts)
    return closed and len(parts) == count and len(set(parts)) == count


def first_word(text: str, word: str) -> bool:
    words = _words(text)
    return bool(words) and words[0] == word


def last_word(text: str, word: str) -> bool:
    words = _words(text)
    return bool(words) and words[-1].lower() == word.lower()


def plain(text: str, value: bool) -> bool:
    """Nothing but letters, blanks and full stops: no markup, no code."""
    return (re.fullmatch(r"[A-Za-z' .!?,;:\"\n-]+", text.strip()) is not None) == value


CONSTRAINTS: dict[str, Callable[..., bool]] = {
    "bullets": bullets,
    "numbered": numbered,
    "separated": separated,
    "members": members,
    "json": json_object,
    "equals": equals,
    "upper": upper,
    "lower": lower,
    "no_commas": no_commas,
    "mentions": mentions,
    "sentences": sentences,
    "first_word": first_word,
    "last_word": last_word,
    "plain": plain,
}


def holds(text: str, constraints: dict[str, object]) -> bool:
    """Say whether the text keeps every constraint."""
    return bool(text.strip()) and all(
        CONSTRAINTS[name](text, value) for name, value in constraints.items()
    )
