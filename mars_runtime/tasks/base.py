"""What a task is, what a family promises, and which prompts are kept for evaluation.

Words, phrasings and specifications stand in JSON files beside the families that use them. Knows
nothing of any single family, of models or tokens.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Split = Literal["train", "eval"]
Phrasings = Mapping[Literal["shared", "held_out"], Sequence[str]]
"""Ways to say the same; those that are held out are in no training prompt."""

HELD_OUT_ONE_IN = 10  # one prompt in ten, and one operand combination in ten, is evaluation's
MAX_ATTEMPTS = 400


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its reference answer and what the checker needs to judge another."""

    family: str
    kind: str
    prompt: str
    answer: str
    expected: str


def is_reserved(text: str) -> bool:
    """Say whether this text belongs to evaluation alone; the same in every process."""
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


def operands(task: Task) -> str:
    """The numbers of a prompt, with its kind; empty when there are fewer than two."""
    numbers = re.findall(r"\d+", task.prompt)
    return f"{task.kind}:{','.join(numbers)}" if len(numbers) > 1 else ""


def read_data(name: str) -> Any:
    """What stands in the file ``name``.json of this folder."""
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))


def phrase(rng: random.Random, split: Split, phrasings: Phrasings) -> str:
    """Pick a phrasing; evaluation takes about a third of its own from those that are held out."""
    if split == "eval" and rng.random() < 0.3:
        return rng.choice(phrasings["held_out"])
    return rng.choice(phrasings["shared"])


def listed(items: Sequence[str]) -> str:
    """Join items as a sentence does: a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def article(noun: str) -> str:
    """The noun with its indefinite article."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


class Family(ABC):
    """A seeded prompt generator with reference answers and a checker that judges any text."""

    name: str

    @abstractmethod
    def draft(self, rng: random.Random, split: Split) -> Task:
        """Make one task, with no regard to which prompts are held out."""

    @abstractmethod
    def judge(self, task: Task, text: str) -> bool:
        """Judge a text; may raise ValueError and its like, which count as a wrong answer."""

    def generate(self, rng: random.Random, split: Split) -> Task:
        """Make one task whose prompt no other split ever makes."""
        if split == "train":
            return self._generate_train(rng)
        wants_new_operands = rng.random() < 0.5
        fallback: Task | None = None
        for _ in range(MAX_ATTEMPTS):
            task = self.draft(rng, split)
            if not is_reserved(task.prompt):
                continue
            combination = operands(task)
            if not wants_new_operands or not combination or is_reserved(combination):
                return task
            fallback = task
        if fallback is None:
            raise RuntimeError(f"family {self.name} found no held-out prompt; add variety to it")
        return fallback

    def _generate_train(self, rng: random.Random) -> Task:
        for _ in range(MAX_ATTEMPTS):
            task = self.draft(rng, "train")
            combination = operands(task)
            if not is_reserved(task.prompt) and not (combination and is_reserved(combination)):
                return task
        raise RuntimeError(f"family {self.name} found no training prompt; add variety to it")

    def check(self, task: Task, text: str) -> bool:
        """Judge any text; never raises."""
        try:
            return self.judge(task, text)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            return False
        except (RecursionError, OSError, MemoryError):
            return False
