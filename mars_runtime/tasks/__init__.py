"""Held-out prompts: task families with a checker each, natural text, and open requests."""

from __future__ import annotations

import random

from .base import Family, Split, Task
from .formats import Formats
from .multiple_choice import MultipleChoice
from .python_functions import PythonFunctions
from .reading import Reading
from .requests import (
    KINDS,
    NATURAL,
    SHIFTED,
    natural_tasks,
    request_tasks,
    says_right,
    shifted_tasks,
)
from .symbolic import Symbolic
from .word_problems import WordProblems

__all__ = [
    "FAMILIES",
    "KINDS",
    "NATURAL",
    "SHIFTED",
    "Family",
    "Split",
    "Task",
    "all_families",
    "check",
    "examples",
    "families_for",
    "generate",
    "is_checkable",
    "is_open",
    "natural_tasks",
]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(WordProblems(), PythonFunctions(), Formats()),
        *(Symbolic(), MultipleChoice(), Reading()),
    )
}
EXAMPLE_SEED = 2026
NUM_EXAMPLES = 5
TRIES_FOR_NEW = 50


def generate(family: str, split: Split, seed: int, count: int) -> list[Task]:
    """Return ``count`` tasks of a family; the same arguments always give the same list.

    Raises ValueError for an unknown family and for the training split of open requests.
    """
    if family == NATURAL:
        return natural_tasks(split, seed, count)
    if is_open(family):
        if split == "train":
            raise ValueError("all open requests are held out, so there are none to train on")
        make = shifted_tasks if family in SHIFTED else request_tasks
        return make(family, seed, count)
    if family not in FAMILIES:
        known = ", ".join([*FAMILIES, NATURAL, *KINDS, *SHIFTED])
        raise ValueError(f"There is no task family {family!r}. Choose one of {known}.")
    rng = random.Random(f"{family}:{split}:{seed}")
    tasks: list[Task] = []
    seen: set[str] = set()
    for _ in range(count):
        for _ in range(1 + TRIES_FOR_NEW):
            task = FAMILIES[family].generate(rng, split)
            if task.prompt not in seen:
                break
        seen.add(task.prompt)
        tasks.append(task)
    return tasks


def all_families() -> list[str]:
    """Return the names of the families with a checker, then that of natural text."""
    return [*FAMILIES, NATURAL]


def families_for(is_chat: bool) -> list[str]:
    """Return the default families: open requests for a chat model, otherwise tasks and natural
    text."""
    return list(KINDS) if is_chat else all_families()


def is_open(family: str) -> bool:
    """Return whether a family consists of open requests to a chat model."""
    return family in KINDS or family in SHIFTED


def is_checkable(task: Task) -> bool:
    """Return whether a checker can judge the answers to this task."""
    return task.family in (*FAMILIES, *SHIFTED) and bool(task.expected)


def check(task: Task, text: str) -> bool:
    """Return whether a text is a correct answer; False without a checker. Never raises."""
    if task.family in SHIFTED:
        return is_checkable(task) and says_right(task, text)
    return is_checkable(task) and FAMILIES[task.family].check(task, text)


def examples() -> list[Task]:
    """Return NUM_EXAMPLES fixed tasks per family from the evaluation split, one of each kind."""
    chosen: list[Task] = []
    for name in FAMILIES:
        by_kind: dict[str, Task] = {}
        for task in generate(name, "eval", EXAMPLE_SEED, 40):
            by_kind.setdefault(task.kind, task)
        chosen += list(by_kind.values())[:NUM_EXAMPLES]
    return chosen + natural_tasks("eval", EXAMPLE_SEED, NUM_EXAMPLES)
