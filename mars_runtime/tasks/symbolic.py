"""Symbolic puzzles in the style of BBH. Each step of an answer compares at most two values, so that
a small model can learn it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from .base import Family, Split, Task, article, listed, phrase, read_data
from .word_problems import add, subtract
from .words import NUMBER_WORDS, TOPICS, TRAIN_PEOPLE, plural

Puzzle = tuple[dict[str, str], str, str]  # prompt fields, steps, result
Item = TypeVar("Item", int, str)

_DATA = read_data("symbolic")
DAYS, MONTHS, ORDINALS = _DATA["days"], _DATA["months"], _DATA["ordinals"]
WORDS = tuple(sorted({word for topic in TOPICS.values() for word in topic}))
PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
MAX_SPELLED = 7  # maximum length of a word that an answer spells letter by letter


def _different_initials(rng: random.Random, count: int) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        word = rng.choice(WORDS)
        if all(word[0] != other[0] for other in words):
            words.append(word)
    return words


def running_best(
    items: Sequence[Item], pick: Callable[[Item, Item], Item]
) -> tuple[Item, list[str]]:
    best, lines = items[0], []
    for item in items[1:]:
        better = pick(best, item)
        lines.append(f"{best} or {item}: {better}")
        best = better
    return best, lines


def sort_words(rng: random.Random, split: Split) -> Puzzle:
    words = _different_initials(rng, rng.choices((3, 4, 5), (65, 32, 3))[0])
    by_letter = {word[0]: word for word in words}
    left, lines = list(by_letter), [", ".join(f"{word} {word[0]}" for word in words)]
    while left:
        best, compared = running_best(left, min)
        left.remove(best)
        rest = f", left {', '.join(left)}" if left else ""
        lines += [*compared, f"Take {best} {by_letter[best]}{rest}"]
    return {"items": ", ".join(words)}, "\n".join(lines), ", ".join(sorted(words))


def _selection(rng: random.Random, split: Split, pick: Callable[[int, int], int]) -> Puzzle:
    numbers = rng.sample(range(1, 100), rng.choices((3, 4), (80, 20))[0])
    left, ordered, lines = list(numbers), [], []
    while len(left) > 1:
        best, compared = running_best(left, pick)
        left.remove(best)
        ordered.append(best)
        lines += [*compared, f"Take {best}, left {', '.join(map(str, left))}"]
    result = ", ".join(map(str, ordered + left))
    return {"items": ", ".join(map(str, numbers))}, "\n".join(lines), result


def largest(rng: random.Random, split: Split) -> Puzzle:
    numbers = rng.sample(range(1, 100), rng.randint(3, 5))
    best, lines = running_best(numbers, max)
    return {"items": ", ".join(map(str, numbers))}, "\n".join(lines), str(best)


def count_objects(rng: random.Random, split: Split) -> Puzzle:
    topic = rng.choice(("fruits", "animals", "birds", "tools", "vegetables", "clothes", "flowers"))
    others = [name for name in ("furniture", "tools", "clothes") if name != topic]
    wanted = rng.sample(TOPICS[topic], rng.randint(2, 3))
    strange = rng.sample(TOPICS[rng.choice(others)], rng.randint(1, 2))
    counts = {item: rng.randint(1, 6) for item in wanted + strange}
    items = wanted + strange
    rng.shuffle(items)
    wanted_items = [item for item in items if item in wanted]
    copied = [f"{counts[i]} {i if counts[i] == 1 else plural(i)}" for i in wanted_items]
    lines, total = [", ".join(copied)], counts[wanted_items[0]]
    for item in wanted_items[1:]:
        lines.append(add(total, counts[item]))
        total += counts[item]
    names = {"clothes": "pieces of clothing"}
    fields = {
        "items": listed(
            [
                article(item)
                if counts[item] == 1
                else f"{NUMBER_WORDS[counts[item]]} {plural(item)}"
                for item in items
            ]
        ),
        "topic": names.get(topic, topic),
    }
    return fields, "\n".join(lines), str(total)


def _numbered(words: Sequence[str]) -> list[str]:
    return [f"{number} {word}" for number, word in enumerate(words, 1)]


def reverse(rng: random.Random, split: Split) -> Puzzle:
    words = rng.sample(WORDS, rng.randint(3, 5))
    numbered = _numbered(words)
    steps = f"{', '.join(numbered)}\n{', '.join(reversed(numbered))}"
    return {"items": ", ".join(words)}, steps, ", ".join(reversed(words))


def nth(rng: random.Random, split: Split) -> Puzzle:
    words = rng.sample(WORDS, rng.randint(3, 5))
    index = rng.randrange(len(words) + 1)
    ordinal = "last" if index == len(words) else ORDINALS[index]
    index = min(index, len(words) - 1)
    steps = f"{', '.join(_numbered(words))}\nThe {ordinal} item is {index + 1} {words[index]}."
    return {"items": ", ".join(words), "place": ordinal}, steps, words[index]


def last_letters(rng: random.Random, split: Split) -> Puzzle:
    count = rng.randint(2, 3)
    use_names = rng.random() < 0.5
    names = [person.name for person in TRAIN_PEOPLE]  # a model cannot spell unseen names
    pool = [word for word in (names if use_names else WORDS) if len(word) <= MAX_SPELLED]
    words = rng.sample(pool, count)
    steps = "\n".join(f"{word}: {'-'.join(word)}, {word[-1]}" for word in words)
    return {"items": ", ".join(words)}, steps, "".join(word[-1] for word in words)


def _value(rng: random.Random) -> str:
    return rng.choice(("True", "False", "not True", "not False"))


def _reduce(text: str) -> str:
    """Evaluate one operation: ``not`` before a value, then a bracket, then the leftmost other."""
    for old, new in (("not True", "False"), ("not False", "True")):
        if old in text:
            return text.replace(old, new, 1)
    pair = r"(True|False) (and|or) (True|False)"
    return re.sub(rf"\({pair}\)" if "(" in text else pair, _joined, text, count=1)


def _joined(match: re.Match[str]) -> str:
    left, word, right = match.groups()
    return str(left == right == "True" if word == "and" else "True" in (left, right))


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
    has_word = count == 1 and rng.random() < 0.5
    fields = {"day": DAYS[start], **_when(count, forward, has_word)}
    counted = ", ".join(f"{step} {day}" for step, day in enumerate(path, 1))
    steps = f"From {DAYS[start]} count {count} {'on' if forward else 'back'}: {counted}"
    return fields, steps, path[-1]


def date(rng: random.Random, split: Split) -> Puzzle:
    month, forward = rng.choice(MONTHS), rng.random() < 0.7
    count = rng.randint(1, 9)
    day = rng.randint(1, 28 - count) if forward else rng.randint(count + 1, 28)
    fields = {"day": str(day), "month": month, **_when(count, forward, count == 1)}
    result = day + count if forward else day - count
    steps = f"Today is day {day} of {month}: {add(day, count) if forward else subtract(day, count)}"
    return fields, steps, f"{result} {month}"


def _when(count: int, forward: bool, has_word: bool) -> dict[str, str]:
    days = f"{count} {'day' if count == 1 else 'days'}"
    if forward:
        return {"when": "tomorrow" if has_word else f"in {days}", "is_": "is"}
    return {"when": "yesterday" if has_word else f"{days} ago", "is_": "was"}


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
        *(sort_words, count_objects, boolean, weekday),
        *(date, brackets, reverse, nth, largest, last_letters),
    )
}
PUZZLES |= {"sort_up": partial(_selection, pick=min), "sort_down": partial(_selection, pick=max)}


def _last_answer(text: str, is_cut: bool) -> str:
    """Without a mark return the last line, or nothing if cut."""
    answers = re.findall(r"answer\s*:\s*(.*)", text, re.IGNORECASE)
    if answers or is_cut:
        return str(answers[-1]).strip() if answers else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _normal(text: str) -> str:
    text = text.strip().rstrip(".").strip("\"'`* ")
    return re.sub(r"[\s,]+", " ", text).strip().lower()


class Symbolic(Family):
    name = "symbolic"

    def draft(self, rng: random.Random, split: Split) -> Task:
        kind = rng.choice(sorted(PUZZLES))
        fields, steps, result = PUZZLES[kind](rng, split)
        question = phrase(rng, split, _DATA["phrasings"][kind]).format(**fields)
        prompt = phrase(rng, split, _DATA["frames"]).replace("{q}", question)
        answer = f"{steps}\nAnswer: {result}"
        return Task(self.name, kind, prompt, answer, json.dumps({"result": result}))

    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        result = json.loads(task.expected)["result"]
        answer = _last_answer(text, is_cut)
        if task.kind == "brackets":
            return re.sub(r"\s", "", answer) == re.sub(r"\s", "", result)
        return _normal(answer) == _normal(result)
