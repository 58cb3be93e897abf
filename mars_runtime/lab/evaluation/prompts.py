"""Load held-out prompts of task families, natural text and open-ended requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime import tasks
from mars_runtime.lab.commands import UsageError
from mars_runtime.tasks import Task


@dataclass(frozen=True, slots=True)
class PromptSet:
    family: str
    tasks: tuple[Task, ...]

    @property
    def prompts_id(self) -> str:
        parts = json.dumps([(task.prompt, task.expected) for task in self.tasks])
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


def load_prompts(families: Sequence[str], seed: int, count: int) -> list[PromptSet]:
    """Raises UsageError."""
    if count < 1:
        raise UsageError(f"--prompts must be at least 1, got {count}.")
    known = [*tasks.all_families(), *tasks.KINDS, *tasks.SHIFTED]
    unknown = [name for name in families if name not in known]
    if unknown:
        raise UsageError(f"--families {unknown[0]!r} is unknown. Choose among {', '.join(known)}.")
    sets = []
    for name in dict.fromkeys(families):
        # Remove repeated prompts, because their results are not independent.
        unique = {task.prompt: task for task in tasks.generate(name, "eval", seed, count)}
        sets.append(PromptSet(name, tuple(unique.values())))
    return sets
