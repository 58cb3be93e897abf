"""Example prompts: a set for each kind of checkpoint, and what the Grid and Batch tabs open with.

``prompts.json`` holds the requests. They were chosen by measurement (``python -m
tools.measure_examples``): requests that SmolLM2-135M-Instruct answers well enough to be read, some,
marked as such, that it gets wrong, and for Grid and Batch requests at which τ, B and the method
matter.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.engines.engines import Engines
from mars_runtime import tasks
from mars_runtime.model.registry import Entry
from mars_runtime.tasks import Task

CHAT, TASKS = "chat", "tasks"
NUM_GENERATED = 8
MAX_REMEMBERED = 4096
WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class RequestFamily:
    """A family of example requests.

    label: text of its button. is_too_hard: whether a small model fails at them. remark: what to try
    with them. settings: those that its examples run with, if they matter.
    """

    label: str
    prompts: Sequence[str]
    is_too_hard: bool = False
    remark: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


_TOLD = json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8"))
LABELS: Mapping[str, str] = _TOLD["task_labels"]
REQUESTS = {name: RequestFamily(**entry) for name, entry in _TOLD["requests"].items()}
EXAMPLE_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    name: family.settings for name, family in REQUESTS.items() if family.settings
}
"""Settings that a family's examples change, by family."""
Openings = Mapping[str, Sequence[str]]
"""Initial prompts by set of examples; a set without any opens with its first examples."""
GRID: Openings = _TOLD["grid"]
BATCH: Openings = _TOLD["batch"]
STABILITY: Openings = _TOLD["stability"]


def set_for(entry: Entry) -> str:
    """Return the set for a checkpoint: one that was trained in this repository knows only its
    tasks.
    """
    return CHAT if entry.path is None else TASKS


def is_too_hard(family: str) -> bool:
    """Whether the family demonstrates what a checkpoint fails at."""
    return family in REQUESTS and REQUESTS[family].is_too_hard


def remark_on(family: str) -> str:
    """Return what to try with the family's examples; empty for nothing."""
    return REQUESTS[family].remark if family in REQUESTS else ""


class ExampleBook:
    """Examples by family, a new one for each click. Thread-safe, shared by all visitors.

    Remembers the prompts it has returned, so that answers to an unchanged prompt can be judged.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_prompt: OrderedDict[str, Task] = OrderedDict()
        self._pages: dict[str, list[Task]] = {}
        for task in tasks.examples():
            self._pages.setdefault(task.family, []).append(task)
        labels = {name: LABELS.get(name, name.replace("_", " ")) for name in self._pages}
        for name, request in REQUESTS.items():
            self._pages[name] = [
                Task(name, "request", prompt, "", "") for prompt in request.prompts
            ]
        chat = {name: request.label for name, request in REQUESTS.items()}
        self.families: dict[str, dict[str, str]] = {CHAT: chat, TASKS: labels}
        """Texts of the buttons by set and family."""
        for page in self._pages.values():
            for task in page:
                self._remember(task)

    def prompt(self, family: str, number: int) -> str:
        """Return the prompt of the family's example ``number`` (0, 1, ...), the same for every
        visitor.
        """
        with self._lock:
            page = self._pages[family]
            if family in self.families[TASKS]:
                self._lengthen(family, page, number)
            return page[number % len(page)].prompt

    def several(self, chosen: str, first: int, count: int) -> list[str]:
        """Return prompts of a set, from its families in turn, without those that are too hard."""
        families = [family for family in self.families[chosen] if not is_too_hard(family)]
        places = [divmod(number, len(families)) for number in range(first, first + count)]
        return [self.prompt(families[family], again) for again, family in places]

    def nearest(self, text: str) -> Task:
        """Return the known task that shares the most words with a text."""
        wanted = _words(text)

        def likeness(task: Task) -> float:
            words = _words(task.prompt)
            return len(wanted & words) / max(len(wanted | words), 1)

        with self._lock:
            return max(
                (task for name in self.families[TASKS] for task in self._pages[name]), key=likeness
            )

    def task(self, prompt: str) -> Task | None:
        """Return the known task with exactly this prompt; None if there is none."""
        with self._lock:
            return self._by_prompt.get(prompt)

    def _lengthen(self, family: str, page: list[Task], number: int) -> None:
        while number >= len(page) and len(page) < MAX_REMEMBERED // len(self._pages):
            fresh = tasks.generate(family, "eval", len(page), NUM_GENERATED)
            page.extend(fresh)
            for task in fresh:
                self._remember(task)

    def _remember(self, task: Task) -> None:
        self._by_prompt[task.prompt] = task
        if len(self._by_prompt) > MAX_REMEMBERED:
            self._by_prompt.popitem(last=False)


class ExamplePages:
    """Initial prompts of a tab, then pages of ``count`` prompts, from the families in turn."""

    def __init__(
        self,
        engines: Engines,
        book: ExampleBook,
        count: int,
        openings: Openings,
        as_text: Callable[[Sequence[str]], str],
    ) -> None:
        self._engines = engines
        self._book = book
        self._count = count
        self._openings = openings
        self._as_text = as_text

    def text(self, page: int, checkpoint: object) -> str:
        """Return the text of a page; an unknown checkpoint gets the default's examples."""
        chosen = set_for(self._engines.entry_or_default(checkpoint))
        opening = self._openings.get(chosen)
        if opening and not page:
            return self._as_text(opening)
        before = page - 1 if opening else page
        return self._as_text(self._book.several(chosen, before * self._count, self._count))

    def kept(self, text: object, page: int, checkpoint: object) -> object:
        """Return this checkpoint's examples if the box has those of another one; otherwise the
        box's text.
        """
        others = [self.text(page, name) for name in self._engines.entries]
        return self.text(page, checkpoint) if text in others else text


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))
