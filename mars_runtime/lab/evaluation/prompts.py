"""Held-out prompts, family by family; natural text and open requests beside them.

Knows the tasks and their checkers; knows no model and no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime import tasks
from mars_runtime.lab.evaluation.grid import digest
from mars_runtime.tasks import Task


class PromptError(ValueError):
    """Prompts that cannot be had; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """The prompts of one family. Natural text and open requests have no right answer and are never
    averaged with the families that have one."""

    family: str
    tasks: tuple[Task, ...]

    @property
    def prompts_id(self) -> str:
        """Changes when any prompt or what counts as right changes."""
        return digest([part for task in self.tasks for part in (task.prompt, task.expected)])

    @property
    def is_open(self) -> bool:
        """Whether these are open requests, as a chat model gets them."""
        return tasks.is_open(self.family)

    def judge(self, index: int, text: str) -> bool | None:
        """Whether ``text`` answers prompt ``index`` rightly; None where nothing can be judged."""
        task = self.tasks[index]
        return tasks.check(task, text) if tasks.is_checkable(task) else None


def load_prompts(families: Sequence[str], seed: int, count: int) -> list[PromptSet]:
    """``count`` different held-out prompts a family (fewer where there are not so many).

    Raises PromptError for an unknown family or a count below 1.
    """
    if count < 1:
        raise PromptError("Ask for at least one prompt a family.")
    known = [*tasks.all_families(), *tasks.KINDS, *tasks.SHIFTED]
    unknown = [name for name in families if name not in known]
    if unknown:
        raise PromptError(f"There is no family {unknown[0]!r}; choose among {', '.join(known)}.")
    return [
        PromptSet(name, _different(tasks.generate(name, "eval", seed, count)))
        for name in dict.fromkeys(families)
    ]


def _different(found: Sequence[Task]) -> tuple[Task, ...]:
    """Without repeated prompts, which would count the same evidence twice."""
    return tuple({task.prompt: task for task in found}.values())
