"""Word problems in the style of GSM8K, solved by steps that a small model can learn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .base import Family, Split, Task, phrase, read_data
from .words import CONTAINERS, THINGS, people

_DATA = read_data("word_problems")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_SUM = re.compile(r"(\d+) ([+-]) (\d+) = (\d+)")
Numbers = dict[str, int]
Range = tuple[int, int | Callable[..., int]]  # the highest number may depend on those before it


def add(a: int, b: int) -> str:
    """Write tens and ones between if both numbers have tens or the ones carry."""
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    has_carry = ones >= 10 and tens > 0
    has_two_tens = a >= 10 and b >= 10 and ones > 0
    between = f"{tens} + {ones} = " if has_carry or has_two_tens else ""
    return f"{a} + {b} = {between}{a + b}"


def subtract(a: int, b: int) -> str:
    """Subtract tens first if the ones borrow."""
    tens, ones = b // 10 * 10, b % 10
    has_borrow = tens > 0 and a % 10 < ones
    between = f"{a} - {tens} - {ones} = {a - tens} - {ones} = " if has_borrow else ""
    return f"{a} - {b} = {between}{a - b}"


def written_out(steps: str) -> str:
    def with_steps(match: re.Match[str]) -> str:
        a, b = int(match[1]), int(match[3])
        return add(a, b) if match[2] == "+" else subtract(a, b)

    return _SUM.sub(with_steps, steps)


FACTORS: dict[str, Range] = {"a": (2, 9), "b": (2, 9)}
NUMBERS: dict[str, tuple[dict[str, Range], Callable[..., Numbers]]] = {
    "addition": ({"a": (2, 40), "b": (2, 20)}, lambda a, b: {"r": a + b}),
    "difference": ({"b": (2, 25), "r": (2, 30)}, lambda b, r: {"a": b + r}),
    "product": (FACTORS, lambda a, b: {"p": a * b, "r": a * b}),
    "product_less": (
        {**FACTORS, "c": (2, lambda a, b: max(2, a * b - 2))},
        lambda a, b, c: {"p": a * b, "r": a * b - c},
    ),
    "product_more": ({**FACTORS, "c": (2, 20)}, lambda a, b, c: {"p": a * b, "r": a * b + c}),
    "change": ({**FACTORS, "r": (2, 25)}, lambda a, b, r: {"p": a * b, "c": a * b + r}),
    "share": ({"b": (2, 9), "r": (2, 9)}, lambda b, r: {"a": b * r}),
    "more_than": ({"a": (2, 20), "b": (2, 12)}, lambda a, b: {"c": a + b, "r": a + a + b}),
    "times_multiple": ({"a": (2, 9), "b": (2, 5)}, lambda a, b: {"c": a * b, "r": a + a * b}),
    "three_terms": (
        dict.fromkeys("abc", (2, 19)),
        lambda a, b, c: {"s": a + b, "r": a + b + c},
    ),
    "sum_less": (
        {"a": (5, 30), "b": (2, 20), "c": (2, lambda a, b: min(30, a + b - 2))},
        lambda a, b, c: {"s": a + b, "r": a + b - c},
    ),
    "two_products": (
        dict.fromkeys("abcd", (2, 6)),
        lambda a, b, c, d: {"p": a * b, "q": c * d, "r": a * b + c * d},
    ),
}
"""Ranges of the drawn numbers, and the numbers that follow from them, with the result ``r``."""


def draw(rng: random.Random, kind: str) -> Numbers:
    ranges, others = NUMBERS[kind]
    drawn: Numbers = {}
    for name, (low, high) in ranges.items():
        drawn[name] = rng.randint(low, high(**drawn) if callable(high) else high)
    return drawn | others(**drawn)


class WordProblems(Family):
    name = "word_problems"

    def draft(self, rng: random.Random, split: Split) -> Task:
        structure = rng.choice(_DATA["structures"])
        first, second = people(rng, split, 2)
        thing, things = rng.choice(THINGS)
        numbers = draw(rng, structure["numbers"])
        fields = {
            "n": first.name,
            "m": second.name,
            "he": first.he,
            "He": first.he.capitalize(),
            "he_": first.name,
            "him": first.him,
            "his": first.his,
            "thing": thing,
            "things": things,
            "boxes": rng.choice(CONTAINERS),
            **numbers,
        }
        texts = (structure["stories"], structure["questions"])
        text = " ".join(phrase(rng, split, phrasings) for phrasings in texts).format(**fields)
        frame = phrase(rng, split, _DATA["frames"])
        text = re.sub(r"\bA ([aeiou])", r"An \1", text)
        steps = written_out(structure["steps"].format(**fields))
        result = str(numbers["r"])
        prompt = frame.replace("{q}", text)
        return Task(self.name, structure["kind"], prompt, f"{steps}\n#### {result}", result)

    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        marked = re.findall(r"####\s*\$?\s*(" + _NUMBER.pattern + ")", text, re.ASCII)
        numbers = marked or ([] if is_cut else re.findall(_NUMBER.pattern, text, re.ASCII))
        return bool(numbers) and float(numbers[-1].replace(",", "")) == float(task.expected)
