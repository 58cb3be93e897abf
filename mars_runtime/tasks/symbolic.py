"""Symbolic reasoning: sorting, counting, boolean expressions, dates, brackets, lists.

Knows the puzzles of `symbolic_puzzles`; an answer spells its steps and ends in `Answer: X`.
"""

from __future__ import annotations

import json
import random
import re

from .base import Family, Split, Task, last_answer, phrase
from .symbolic_phrasings import PHRASINGS
from .symbolic_puzzles import PUZZLES

FRAMES = (
    "{q}",
    "{q}",
    "{q}",
    '{q}\nEnd with "Answer:" and the result.',
    "Think first. {q}",
    "Puzzle: {q}",
    "{q}\nGive the steps.",
)
HELD_OUT_FRAMES = ("{q}\nShow how you find it.",)


def _normal(text: str) -> str:
    text = text.strip().rstrip(".").strip("\"'`* ")
    return re.sub(r"[\s,]+", " ", text).strip().lower()


class Symbolic(Family):
    """Puzzles with one right result."""

    name = "symbolic"
    title = "Symbolic reasoning"
    benchmark = "BBH"

    def draft(self, rng: random.Random, split: Split) -> Task:
        kind = rng.choice(sorted(PUZZLES))
        fields, steps, result = PUZZLES[kind](rng, split)
        phrasings = PHRASINGS[kind]
        question = phrase(rng, split, phrasings[:-1], phrasings[-1:]).format(**fields)
        prompt = phrase(rng, split, FRAMES, HELD_OUT_FRAMES).replace("{q}", question)
        return Task(
            self.name, kind, prompt, f"{steps}\nAnswer: {result}", json.dumps({"result": result})
        )

    def judge(self, task: Task, text: str) -> bool:
        result = json.loads(task.expected)["result"]
        found = last_answer(text)
        if task.kind == "brackets":
            return re.sub(r"\s", "", found) == re.sub(r"\s", "", result)
        return _normal(found) == _normal(result)
