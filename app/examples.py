"""Prompts to click: held-out tasks of every family and openings of tales. Knows no gradio.

Remembers the tasks it has handed out, so that the output for an unchanged prompt can be judged.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from mars_runtime import tasks
from mars_runtime.tasks import Task

LABELS = {
    "word_problems": "Word problem",
    "python_functions": "Python",
    "formats": "Format",
    "symbolic": "Symbols",
    "multiple_choice": "Choice",
    "reading": "Reading",
    "natural": "Tale",
}
BATCH = 8
MAX_REMEMBERED = 4096


class ExampleBook:
    """Examples family by family, a new one for each click; safe to share between visitors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_prompt: OrderedDict[str, Task] = OrderedDict()
        self._pages: dict[str, list[Task]] = {}
        for task in tasks.examples():
            self._pages.setdefault(task.family, []).append(task)
            self._remember(task)

    @property
    def families(self) -> dict[str, str]:
        """Family name -> the words on its button."""
        return {name: LABELS.get(name, name.replace("_", " ")) for name in self._pages}

    def prompt(self, family: str, number: int) -> str:
        """The prompt of the family's example ``number`` (0, 1, ...); the same for every visitor."""
        with self._lock:
            page = self._pages[family]
            while number >= len(page) and len(page) < MAX_REMEMBERED // len(self._pages):
                fresh = tasks.generate(family, "eval", len(page), BATCH)
                page.extend(fresh)
                for task in fresh:
                    self._remember(task)
            return page[number % len(page)].prompt

    def task(self, prompt: str) -> Task | None:
        """The task whose prompt this is, to the letter, among those handed out."""
        with self._lock:
            return self._by_prompt.get(prompt)

    def _remember(self, task: Task) -> None:
        self._by_prompt[task.prompt] = task
        if len(self._by_prompt) > MAX_REMEMBERED:
            self._by_prompt.popitem(last=False)
