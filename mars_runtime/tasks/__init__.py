"""Tasks with checkable answers, family by family; natural text and open requests beside them.

Knows the families and their names; it knows no model, no tokens and no data folder.
"""

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
    """Make `count` tasks of a family; the same arguments always give the same list."""
    if family == NATURAL:
        return natural_tasks(split, seed, count)
    if is_open(family):
        if split == "train":
            raise ValueError("open requests are held out: there are none to train on")
        make = shifted_tasks if family in SHIFTED else request_tasks
        return make(family, seed, count)
    if family not in FAMILIES:
        known = ", ".join([*FAMILIES, NATURAL, *KINDS, *SHIFTED])
        raise ValueError(f"no family {family!r}; choose one of {known}")
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
    """Every family with checkable answers, then natural text."""
    return [*FAMILIES, NATURAL]


def families_for(is_chat: bool) -> list[str]:
    """What a model is asked when nobody says: open requests where it was made to answer anybody,
    else tasks and natural text."""
    return list(KINDS) if is_chat else all_families()


def is_open(family: str) -> bool:
    """Say whether these are requests as a chat model gets them."""
    return family in KINDS or family in SHIFTED


def is_checkable(task: Task) -> bool:
    """Say whether a text can be judged right or wrong for this task."""
    return task.family in (*FAMILIES, *SHIFTED) and bool(task.expected)


def check(task: Task, text: str) -> bool:
    """Judge any text; never raises, and says no where nothing can be judged."""
    if task.family in SHIFTED:
        return is_checkable(task) and says_right(task, text)
    return is_checkable(task) and FAMILIES[task.family].check(task, text)


def examples() -> list[Task]:
    """A fixed handful per family from the evaluation split, of different kinds."""
    chosen: list[Task] = []
    for name in FAMILIES:
        by_kind: dict[str, Task] = {}
        for task in generate(name, "eval", EXAMPLE_SEED, 40):
            by_kind.setdefault(task.kind, task)
        chosen += list(by_kind.values())[:NUM_EXAMPLES]
    return chosen + natural_tasks("eval", EXAMPLE_SEED, NUM_EXAMPLES)
