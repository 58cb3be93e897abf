"""Held-out prompts: task families with checkers, text to continue, and open-ended requests."""

from __future__ import annotations

import random

from . import sandbox
from .base import Family, Split, Task
from .formats import Formats
from .multiple_choice import MultipleChoice
from .python_functions import PythonFunctions
from .reading import Reading
from .requests import (
    KINDS,
    NATURAL,
    SHIFTED,
    contains_right_word,
    natural_tasks,
    request_tasks,
    shifted_tasks,
)
from .symbolic import Symbolic
from .word_problems import WordProblems

__all__ = ["FAMILIES", "KINDS", "NATURAL", "SHIFTED", "Family", "Split", "Task", "natural_tasks"]

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
    """Equal arguments return equal lists, of at most ``count``. Raises ValueError, also for the
    training split of open-ended requests, which does not exist."""
    if family == NATURAL:
        return natural_tasks(split, seed, count)
    if is_open(family):
        if split == "train":
            raise ValueError("all open-ended requests are held out, so there are none to train on")
        make = shifted_tasks if family in SHIFTED else request_tasks
        return make(family, seed, count)
    if family not in FAMILIES:
        known = ", ".join([*FAMILIES, NATURAL, *KINDS, *SHIFTED])
        raise ValueError(f"There is no task family {family!r}. Choose one of {known}.")
    rng = random.Random(f"{family}:{split}:{seed}")
    tasks: list[Task] = []
    prompts: set[str] = set()
    for _ in range(count):
        for _ in range(1 + TRIES_FOR_NEW):
            task = FAMILIES[family].generate(rng, split)
            if task.prompt not in prompts:
                break
        prompts.add(task.prompt)
        tasks.append(task)
    return tasks


def all_families() -> list[str]:
    return [*FAMILIES, NATURAL]


def families_for(is_chat: bool) -> list[str]:
    return list(KINDS) if is_chat else all_families()


def is_open(family: str) -> bool:
    return family in KINDS or family in SHIFTED


def has_checker(task: Task) -> bool:
    return task.family in (*FAMILIES, *SHIFTED) and bool(task.expected)


def is_checkable(task: Task) -> bool:
    """Python functions need a sandbox."""
    return has_checker(task) and (task.family != PythonFunctions.name or sandbox.is_available())


def check(task: Task, text: str, is_cut: bool = False) -> bool:
    """A cut text is correct only with a whole line that is marked as the answer or, in SHIFTED, an
    expected word."""
    if task.family in SHIFTED:
        return is_checkable(task) and contains_right_word(task, text)
    return is_checkable(task) and FAMILIES[task.family].check(task, text, is_cut)


def verdict(task: Task, text: str, *, is_cut: bool) -> bool | None:
    """Return None if no checker can judge the text."""
    return check(task, text, is_cut) if is_checkable(task) else None


def examples() -> list[Task]:
    """Return up to NUM_EXAMPLES tasks per family, all of different kinds."""
    chosen: list[Task] = []
    for name in FAMILIES:
        by_kind: dict[str, Task] = {}
        for task in generate(name, "eval", EXAMPLE_SEED, 40):
            by_kind.setdefault(task.kind, task)
        chosen += list(by_kind.values())[:NUM_EXAMPLES]
    return chosen + natural_tasks("eval", EXAMPLE_SEED, NUM_EXAMPLES)
