"""The puzzles of symbolic reasoning: fields for a prompt, spelled steps, the result.

Knows no phrasing and no checker; those about lists are in `symbolic_lists`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .arithmetic import add, subtract
from .base import Split, word_list
from .symbolic_lists import (
    Puzzle,
    count_objects,
    largest,
    last_letters,
    nth,
    reverse,
    sort_down,
    sort_up,
    sort_words,
)

DAYS = word_list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = word_list(
    "January February March April May June July August September October November December"
)
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}


def _value(rng: random.Random) -> str:
    return rng.choice(("True", "False", "not True", "not False"))


def _reduce(text: str) -> str:
    """One step: all bare `not` inside first, then the bracket, then `and`, then `or`."""
    for old, new in (("not True", "False"), ("not False", "True")):
        if old in text:
            return text.replace(old, new, 1)
    for left in ("True", "False"):
        for right in ("True", "False"):
            if f"({left} and {right})" in text or f"({left} or {right})" in text:
                both, either = f"({left} and {right})", f"({left} or {right})"
                text = text.replace(both, str(left == right == "True"), 1)
                return text.replace(either, str("True" in (left, right)), 1)
    left, word, right = text.split(" ")
    joined = left == right == "True" if word == "and" else "True" in (left, right)
    return str(joined)


def boolean(rng: random.Random, split: Split) -> Puzzle:
    inner = f"({_value(rng)} {rng.choice(('and', 'or'))} {_value(rng)})"
    if rng.random() < 0.4:
        inner = f"not {inner}"
    parts = [inner, _value(rng)]
    rng.shuffle(parts)
    text = f" {rng.choice(('and', 'or'))} ".join(parts) if rng.random() < 0.75 else inner
    if rng.random() < 0.1:
        text = f"{_value(rng)} {rng.choice(('and', 'or'))} {_value(rng)}"
    steps, current = [text], text
    while current not in ("True", "False"):
        current = _reduce(current)
        steps.append(f"= {current}")
    return {"text": text}, "\n".join(steps), current


def weekday(rng: random.Random, split: Split) -> Puzzle:
    start, count, forward = rng.randrange(7), rng.randint(1, 6), rng.random() < 0.7
    sign = 1 if forward else -1
    path = [DAYS[(start + sign * step) % 7] for step in range(1, count + 1)]
    days = "day" if count == 1 else "days"
    when = f"in {count} {days}" if forward else f"{count} {days} ago"
    if count == 1 and rng.random() < 0.5:
        when = "tomorrow" if forward else "yesterday"
    fields = {"day": DAYS[start], "when": when, "is_": "is" if forward else "was"}
    counted = ", ".join(f"{step} {day}" for step, day in enumerate(path, 1))
    steps = f"From {DAYS[start]} count {count} {'on' if forward else 'back'}: {counted}"
    return fields, steps, path[-1]


def date(rng: random.Random, split: Split) -> Puzzle:
    month, forward = rng.choice(MONTHS), rng.random() < 0.7
    count = rng.randint(1, 9)
    day = rng.randint(1, 28 - count) if forward else rng.randint(count + 1, 28)
    days = "day" if count == 1 else "days"
    when = f"in {count} {days}" if forward else f"{count} {days} ago"
    if count == 1:
        when = "tomorrow" if forward else "yesterday"
    is_ = "is" if forward else "was"
    result = day + count if forward else day - count
    steps = f"Today is day {day} of {month}: {add(day, count) if forward else subtract(day, count)}"
    return {"day": str(day), "month": month, "when": when, "is_": is_}, steps, f"{result} {month}"


def brackets(rng: random.Random, split: Split) -> Puzzle:
    stack: list[str] = []
    text: list[str] = []
    lines: list[str] = []
    length = rng.randint(3, 6)
    while len(text) < length or len(stack) < 2:
        if stack and len(text) < length and (len(stack) == 3 or rng.random() < 0.35):
            text.append(PAIRS[stack.pop()])
        else:
            stack.append(rng.choice("([{<"))
            text.append(stack[-1])
        lines.append(f"{text[-1]} leaves {' '.join(stack) or 'none'}")
    closing = " ".join(PAIRS[mark] for mark in reversed(stack))
    lines.append(f"From last to first: {' '.join(reversed(stack))}")
    return {"text": " ".join(text)}, "\n".join(lines), closing


PUZZLES: dict[str, Callable[[random.Random, Split], Puzzle]] = {
    maker.__name__: maker
    for maker in (
        sort_words,
        sort_up,
        sort_down,
        count_objects,
        boolean,
        weekday,
        date,
        brackets,
        reverse,
        nth,
        largest,
        last_letters,
    )
}
