"""Prompts to click, a set for each kind of checkpoint: held-out tasks, or real requests.

Remembers what it has handed out, so that the output for an unchanged prompt can be judged. Knows no
gradio.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict

from app.examples.requests import REQUESTS
from mars_runtime.lab import tasks
from mars_runtime.lab.tasks import Task
from mars_runtime.model.registry import Entry

CHAT, TASKS = "chat", "tasks"
LABELS = {
    "word_problems": "Word problem",
    "python_functions": "Python",
    "formats": "Format",
    "symbolic": "Symbols",
    "multiple_choice": "Choice",
    "reading": "Reading",
    "natural": "Tale",
}
NUM_GENERATED = 8
MAX_REMEMBERED = 4096
WORD = re.compile(r"[a-z]+")


def set_for(entry: Entry) -> str:
    """The set of a checkpoint: those that were trained here know their tasks and nothing else."""
    return CHAT if entry.path is None else TASKS


def is_too_hard(family: str) -> bool:
    """Whether the family shows what a checkpoint fails at."""
    return family in REQUESTS and REQUESTS[family].is_too_hard


def remark_on(family: str) -> str:
    """What to try with the family's examples, if anything."""
    return REQUESTS[family].remark if family in REQUESTS else ""


class ExampleBook:
    """Examples family by family, a new one for each click; safe to share between visitors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_prompt: OrderedDict[str, Task] = OrderedDict()
        self._pages: dict[str, list[Task]] = {}
        for task in tasks.examples():
            self._pages.setdefault(task.family, []).append(task)
        own = {name: LABELS.get(name, name.replace("_", " ")) for name in self._pages}
        for name, request in REQUESTS.items():
            self._pages[name] = [Task(name, "request", each, "", "") for each in request.prompts]
        chat = {name: request.label for name, request in REQUESTS.items()}
        self.families: dict[str, dict[str, str]] = {CHAT: chat, TASKS: own}
        """Set -> family name -> the words on its button."""
        for page in self._pages.values():
            for task in page:
                self._remember(task)

    def prompt(self, family: str, number: int) -> str:
        """The prompt of the family's example ``number`` (0, 1, ...); the same for every visitor."""
        with self._lock:
            page = self._pages[family]
            if family in self.families[TASKS]:
                self._lengthen(family, page, number)
            return page[number % len(page)].prompt

    def several(self, chosen: str, first: int, count: int) -> list[str]:
        """Prompts of a set, from each family in turn; those that are too hard are left out."""
        families = [family for family in self.families[chosen] if not is_too_hard(family)]
        places = [divmod(number, len(families)) for number in range(first, first + count)]
        return [self.prompt(families[family], again) for again, family in places]

    def nearest(self, text: str) -> Task:
        """The task, among those handed out, that shares the most words with a text."""
        wanted = _words(text)

        def likeness(task: Task) -> float:
            words = _words(task.prompt)
            return len(wanted & words) / max(len(wanted | words), 1)

        with self._lock:
            return max(
                (task for name in self.families[TASKS] for task in self._pages[name]), key=likeness
            )

    def task(self, prompt: str) -> Task | None:
        """What this prompt is, to the letter, among those handed out."""
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


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))
