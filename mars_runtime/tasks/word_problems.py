"""Word problems solved step by step and ending in `#### n`.

Knows only sums a child can do in one line; it judges the final number, not the steps.
"""

from __future__ import annotations

import random
import re

from .arithmetic import written_out
from .base import Family, Split, Task, phrase
from .pools import CONTAINERS, THINGS, people
from .word_structures import STRUCTURES
from .word_structures_more import MORE_STRUCTURES

ALL_STRUCTURES = STRUCTURES + MORE_STRUCTURES
FRAMES = (
    "{q}",
    "{q}",
    "{q}",
    "Solve step by step. {q}",
    "{q} Show your steps.",
    "{q} End with #### and the number.",
    "Word problem: {q}",
    "{q}\nThink step by step and write the result after ####.",
)
HELD_OUT_FRAMES = ("Solve this word problem. {q}", "{q} Write each step on its own line.")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def _value(number: str) -> float:
    return float(number.replace(",", ""))


class WordProblems(Family):
    """Small stories with numbers."""

    name = "word_problems"
    title = "Word problems"
    benchmark = "GSM8K"

    def draft(self, rng: random.Random, split: Split) -> Task:
        structure = rng.choice(ALL_STRUCTURES)
        first, second = people(rng, split, 2)
        thing, things = rng.choice(THINGS)
        numbers = structure.numbers(rng)
        fields = {
            "n": first.name,
            "m": second.name,
            "he": first.he,
            "He": first.he.capitalize(),
            "he_": first.name,
            "him": "him" if first.he == "he" else "her",
            "his": first.his,
            "thing": thing,
            "things": things,
            "boxes": rng.choice(CONTAINERS),
            **numbers,
        }
        story = phrase(rng, split, structure.stories[:-1], structure.stories[-1:])
        question = phrase(rng, split, structure.questions[:-1], structure.questions[-1:])
        frame = phrase(rng, split, FRAMES, HELD_OUT_FRAMES)
        text = re.sub(r"\bA ([aeiou])", r"An \1", f"{story} {question}".format(**fields))
        steps = written_out(structure.steps.format(**fields))
        result = str(numbers["r"])
        prompt = frame.replace("{q}", text)
        return Task(self.name, structure.kind, prompt, f"{steps}\n#### {result}", result)

    def judge(self, task: Task, text: str) -> bool:
        marked = re.findall(r"####\s*\$?\s*(" + _NUMBER.pattern + ")", text, re.ASCII)
        found = marked or re.findall(_NUMBER.pattern, text, re.ASCII)
        return bool(found) and _value(found[-1]) == float(task.expected)
