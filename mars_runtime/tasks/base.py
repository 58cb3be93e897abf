"""Tasks, the interface of a task family, and the rule that reserves prompts for evaluation.

Words, phrasings and specifications are in JSON files in this folder.
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
"""Phrasings with the same meaning; no training prompt uses those in ``held_out``."""

HELD_OUT_ONE_IN = 10  # evaluation gets every tenth prompt and operand combination
MAX_ATTEMPTS = 400


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its reference answer and the data that the checker needs (``expected``)."""

    family: str
    kind: str
    prompt: str
    answer: str
    expected: str


def is_reserved(text: str) -> bool:
    """Return whether a text is reserved for evaluation; the same in every process."""
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


def operands(task: Task) -> str:
    """Return the kind and the numbers of a prompt, or "" if it has fewer than two numbers."""
    numbers = re.findall(r"\d+", task.prompt)
    return f"{task.kind}:{','.join(numbers)}" if len(numbers) > 1 else ""


def read_data(name: str) -> Any:
    """Return the content of the file ``name``.json in this folder."""
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))


def phrase(rng: random.Random, split: Split, phrasings: Phrasings) -> str:
    """Draw a phrasing; about a third of the evaluation prompts use a held-out one."""
    if split == "eval" and rng.random() < 0.3:
        return rng.choice(phrasings["held_out"])
    return rng.choice(phrasings["shared"])


def listed(items: Sequence[str]) -> str:
    """Join items as in a sentence: a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def article(noun: str) -> str:
    """Return the noun with its indefinite article."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


class Family(ABC):
    """A seeded prompt generator with reference answers and a checker that judges any text."""

    name: str

    @abstractmethod
    def draft(self, rng: random.Random, split: Split) -> Task:
        """Generate one task without checking whether its prompt is held out."""

    @abstractmethod
    def judge(self, task: Task, text: str) -> bool:
        """Return whether a text is correct. ``check`` counts a ValueError as wrong."""

    def generate(self, rng: random.Random, split: Split) -> Task:
        """Generate one task with a prompt that the other split never generates.

        Raises RuntimeError after MAX_ATTEMPTS.
        """
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
            raise RuntimeError(
                f"family {self.name}: no held-out prompt in {MAX_ATTEMPTS} tries; add phrasings"
            )
        return fallback

    def _generate_train(self, rng: random.Random) -> Task:
        for _ in range(MAX_ATTEMPTS):
            task = self.draft(rng, "train")
            combination = operands(task)
            if not is_reserved(task.prompt) and not (combination and is_reserved(combination)):
                return task
        raise RuntimeError(
            f"family {self.name}: no training prompt in {MAX_ATTEMPTS} tries; add phrasings"
        )

    def check(self, task: Task, text: str) -> bool:
        """Return whether a text is correct; never raises."""
        try:
            return self.judge(task, text)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            return False
        except (RecursionError, OSError, MemoryError):
            return False
