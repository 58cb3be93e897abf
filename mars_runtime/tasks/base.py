"""Task families, and the rule that reserves prompts for evaluation. JSON files hold their words."""

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
"""Only evaluation prompts use the ``held_out`` phrasings."""

HELD_OUT_ONE_IN = 10  # about 1 of 10 prompts and operand combinations is for evaluation only
MAX_ATTEMPTS = 400


@dataclass(frozen=True, slots=True)
class Task:
    """expected: data for the checker, such as the result."""

    family: str
    kind: str
    prompt: str
    answer: str
    expected: str


def is_reserved(text: str) -> bool:
    """The hash never changes."""
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


def operands(task: Task) -> str:
    numbers = re.findall(r"\d+", task.prompt)
    return f"{task.kind}:{','.join(numbers)}" if len(numbers) > 1 else ""


def read_data(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))


def phrase(rng: random.Random, split: Split, phrasings: Phrasings) -> str:
    if split == "eval" and rng.random() < 0.3:
        return rng.choice(phrasings["held_out"])
    return rng.choice(phrasings["shared"])


def listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


class Family(ABC):
    name: str

    @abstractmethod
    def draft(self, rng: random.Random, split: Split) -> Task:
        """The prompt may be reserved for evaluation."""

    @abstractmethod
    def is_right(self, task: Task, text: str, is_cut: bool) -> bool:
        """A cut text has only whole lines here, and needs a marked answer. May raise for a
        malformed text; ``check`` then returns False."""

    def generate(self, rng: random.Random, split: Split) -> Task:
        """The prompt never occurs in the other split. Half of the evaluation tasks also have
        numbers that no training task of that kind has."""
        is_eval = split == "eval"
        wants_new_operands = is_eval and rng.random() < 0.5
        fallback: Task | None = None
        for _ in range(MAX_ATTEMPTS):
            task = self.draft(rng, split)
            combination = operands(task)
            is_new = bool(combination) and is_reserved(combination)
            if is_reserved(task.prompt) != is_eval or (is_new and not is_eval):
                continue
            if is_new or not combination or not wants_new_operands:
                return task
            fallback = task
        if fallback is None:
            raise RuntimeError(f"family {self.name}: no {split} prompt found; add phrasings")
        return fallback

    def check(self, task: Task, text: str, is_cut: bool) -> bool:
        if is_cut:
            text = text[: text.rfind("\n") + 1]
        try:
            return self.is_right(task, text, is_cut)
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            return False
