"""The puzzles of symbolic reasoning: fields for a prompt, spelled steps, the result.

Knows no phrasing and no checker.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .base import Split, listed, word_list
from .pools import NUMBER_WORDS, TOPICS, TRAIN_PEOPLE, plural

Puzzle = tuple[dict[str, str], str, str]  # prompt fields, steps, result

DAYS = word_list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = word_list(
    "January February March April May June July August September October November December"
)
ORDINALS = word_list("first second third fourth fifth last")
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
WORDS = tuple(sorted({word for topic in TOPICS.values() for word in topic}))


def _different_initials(rng: random.Random, count: int) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        word = rng.choice(WORDS)
        if all(word[0] != other[0] for other in words):
            words.append(word)
    return words


def sort_words(rng: random.Random, split: Split) -> Puzzle:
    words = _different_initials(rng, rng.randint(3, 5))
    ordered = sorted(words)
    initials = ", ".join(f"{word[0]} {word}" for word in words)
    steps = f"First letters: {initials}.\nIn order: {', '.join(word[0] for word in ordered)}."
    return {"items": ", ".join(words)}, steps, ", ".join(ordered)


def _selection(rng: random.Random, word: str, pick: Callable[[list[int]], int]) -> Puzzle:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    left, ordered, lines = list(numbers), [], []
    while len(left) > 1:
        best = pick(left)
        lines.append(f"{word} of {', '.join(map(str, left))}: {best}")
        left.remove(best)
        ordered.append(best)
    result = ", ".join(map(str, ordered + left))
    return {"items": ", ".join(map(str, numbers))}, "\n".join(lines), result


def sort_up(rng: random.Random, split: Split) -> Puzzle:
    return _selection(rng, "Smallest", min)


def sort_down(rng: random.Random, split: Split) -> Puzzle:
    return _selection(rng, "Largest", max)


def _counted(item: str, number: int) -> str:
    if number == 1:
        return f"{'an' if item[0] in 'aeiou' else 'a'} {item}"
    return f"{NUMBER_WORDS[number]} {plural(item)}"


def count_objects(rng: random.Random, split: Split) -> Puzzle:
    topic = rng.choice(word_list("fruits animals birds tools vegetables clothes flowers"))
    others = [name for name in ("furniture", "tools", "clothes") if name != topic]
    wanted = rng.sample(TOPICS[topic], rng.randint(2, 3))
    strange = rng.sample(TOPICS[rng.choice(others)], rng.randint(1, 2))
    counts = {item: rng.randint(1, 6) for item in wanted + strange}
    items = wanted + strange
    rng.shuffle(items)
    kept = [item for item in items if item in wanted]
    lines = [f"{plural(item)}: {counts[item]}" for item in kept]
    total = counts[kept[0]]
    for item in kept[1:]:
        lines.append(f"{total} + {counts[item]} = {total + counts[item]}")
        total += counts[item]
    names = {"clothes": "pieces of clothing"}
    fields = {
        "items": listed([_counted(item, counts[item]) for item in items]),
        "topic": names.get(topic, topic),
    }
    return fields, "\n".join(lines), str(total)


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
    steps = f"From {DAYS[start]} count {count} {'on' if forward else 'back'}: {', '.join(path)}."
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
    steps = f"Today is day {day} of {month}: {day} {'+' if forward else '-'} {count} = {result}."
    return {"day": str(day), "month": month, "when": when, "is_": is_}, steps, f"{result} {month}"


def brackets(rng: random.Random, split: Split) -> Puzzle:
    stack: list[str] = []
    text: list[str] = []
    for _ in range(rng.randint(3, 7)):
        if stack and rng.random() < 0.35:
            text.append(PAIRS[stack.pop()])
        elif len(stack) < 4:
            stack.append(rng.choice("([{<"))
            text.append(stack[-1])
    while len(stack) < 2:
        stack.append(rng.choice("([{<"))
        text.append(stack[-1])
    closing = " ".join(PAIRS[mark] for mark in reversed(stack))
    steps = f"Still open: {' '.join(stack)}\nFrom last to first: {' '.join(reversed(stack))}"
    return {"text": " ".join(text)}, steps, closing


def reverse(rng: random.Random, split: Split) -> Puzzle:
    words = rng.sample(WORDS, rng.randint(3, 5))
    items = ", ".join(words)
    steps = f"The last item is {words[-1]} and the first is {words[0]}."
    return {"items": items}, steps, ", ".join(reversed(words))


def nth(rng: random.Random, split: Split) -> Puzzle:
    words = rng.sample(WORDS, rng.randint(3, 5))
    index = rng.randrange(len(words) + 1)
    if index == len(words):
        place, index = "last", len(words) - 1
    else:
        place = ORDINALS[index]
    steps = ", ".join(f"{number} {word}" for number, word in enumerate(words, 1)) + "."
    return {"items": ", ".join(words), "place": place}, steps, words[index]


def largest(rng: random.Random, split: Split) -> Puzzle:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    best, lines = numbers[0], []
    for number in numbers[1:]:
        bigger = max(best, number)
        lines.append(f"{best} or {number}: {bigger}")
        best = bigger
    return {"items": ", ".join(map(str, numbers))}, "\n".join(lines), str(best)


def last_letters(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(2, 3)
    use_names = rng.random() < 0.5
    names = [person.name for person in TRAIN_PEOPLE]  # spelling of new names cannot be guessed
    words = rng.sample(names if use_names else WORDS, count)
    steps = "\n".join(f"{word} ends with {word[-1]}." for word in words)
    return {"items": ", ".join(words)}, steps, "".join(word[-1] for word in words)


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
