"""Word problems in the style of GSM8K; a reference answer shows its steps and ends with ``#### n``.

Steps add and subtract tens first, then ones, then both results, so that a small model can learn
them. The checker compares only the final number.
"""

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


def add(a: int, b: int) -> str:
    """Write a + b = c, with tens and ones as an intermediate step where the sum needs it.

    The step is included if both numbers have tens, or if the ones carry into existing tens.
    """
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    has_carry = ones >= 10 and tens > 0
    has_two_tens = a >= 10 and b >= 10 and ones > 0
    between = f"{tens} + {ones} = " if has_carry or has_two_tens else ""
    return f"{a} + {b} = {between}{a + b}"


def subtract(a: int, b: int) -> str:
    """Write a - b = c; if the ones borrow, with a step that subtracts the tens first."""
    tens, ones = b // 10 * 10, b % 10
    has_borrow = tens > 0 and a % 10 < ones
    between = f"{a} - {tens} - {ones} = {a - tens} - {ones} = " if has_borrow else ""
    return f"{a} - {b} = {between}{a - b}"


def written_out(steps: str) -> str:
    """Replace each ``a + b = c`` and ``a - b = c`` in a text by its form with steps."""

    def with_steps(match: re.Match[str]) -> str:
        a, b = int(match[1]), int(match[3])
        return add(a, b) if match[2] == "+" else subtract(a, b)

    return _SUM.sub(with_steps, steps)


def addition(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 40), rng.randint(2, 20)
    return {"a": a, "b": b, "r": a + b}


def difference(rng: random.Random) -> Numbers:
    b, r = rng.randint(2, 25), rng.randint(2, 30)
    return {"a": b + r, "b": b, "r": r}


def product(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    return {"a": a, "b": b, "p": a * b, "r": a * b}


def product_less(rng: random.Random) -> Numbers:
    n = product(rng)
    c = rng.randint(2, max(2, n["p"] - 2))
    return n | {"c": c, "r": n["p"] - c}


def product_more(rng: random.Random) -> Numbers:
    n = product(rng)
    c = rng.randint(2, 20)
    return n | {"c": c, "r": n["p"] + c}


def change(rng: random.Random) -> Numbers:
    n = product(rng)
    r = rng.randint(2, 25)
    return n | {"c": n["p"] + r, "r": r}


def share(rng: random.Random) -> Numbers:
    b, r = rng.randint(2, 9), rng.randint(2, 9)
    return {"a": b * r, "b": b, "r": r}


def more_than(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 20), rng.randint(2, 12)
    return {"a": a, "b": b, "c": a + b, "r": a + a + b}


def times_multiple(rng: random.Random) -> Numbers:
    a, b = rng.randint(2, 9), rng.randint(2, 5)
    return {"a": a, "b": b, "c": a * b, "r": a + a * b}


def three_terms(rng: random.Random) -> Numbers:
    a, b, c = (rng.randint(2, 19) for _ in range(3))
    return {"a": a, "b": b, "c": c, "s": a + b, "r": a + b + c}


def sum_less(rng: random.Random) -> Numbers:
    a, b = rng.randint(5, 30), rng.randint(2, 20)
    c = rng.randint(2, min(30, a + b - 2))
    return {"a": a, "b": b, "c": c, "s": a + b, "r": a + b - c}


def two_products(rng: random.Random) -> Numbers:
    a, b, c, d = (rng.randint(2, 6) for _ in range(4))
    return {"a": a, "b": b, "c": c, "d": d, "p": a * b, "q": c * d, "r": a * b + c * d}


NUMBERS: dict[str, Callable[[random.Random], Numbers]] = {
    draw.__name__: draw
    for draw in (
        *(addition, difference, product, product_less, product_more, change, share, more_than),
        *(times_multiple, three_terms, sum_less, two_products),
    )
}
"""Functions that draw the numbers of a problem, by the name that word_problems.json uses.

``r`` is the result; the other keys are placeholders in stories and steps.
"""


class WordProblems(Family):
    """Short stories that ask for a number."""

    name = "word_problems"

    def draft(self, rng: random.Random, split: Split) -> Task:
        structure = rng.choice(_DATA["structures"])
        first, second = people(rng, split, 2)
        thing, things = rng.choice(THINGS)
        numbers = NUMBERS[structure["numbers"]](rng)
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
