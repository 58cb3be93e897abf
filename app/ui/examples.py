"""Example prompts: one set for each type of checkpoint.

``prompts.json`` holds the requests. They were chosen by measurement: requests that
SmolLM2-135M-Instruct answers acceptably, and some marked requests that it gets wrong.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mars_runtime import tasks
from mars_runtime.model.registry import Entry
from mars_runtime.tasks import Task

CHAT, TASKS = "chat", "tasks"
NUM_GENERATED = 8
MAX_REMEMBERED = 4096
WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class RequestFamily:
    """A family of similar example prompts.

    label: text of its button.
    is_too_hard: small models get these prompts wrong.
    remark: a hint about what to try with these prompts.
    """

    label: str
    prompts: Sequence[str]
    is_too_hard: bool = False
    remark: str = ""


_FILE = json.loads(Path(__file__).with_name("prompts.json").read_text(encoding="utf-8"))
LABELS: Mapping[str, str] = _FILE["task_labels"]
REQUESTS = {name: RequestFamily(**entry) for name, entry in _FILE["requests"].items()}


def set_for(entry: Entry) -> str:
    return CHAT if entry.path is None else TASKS


def is_too_hard(family: str) -> bool:
    return family in REQUESTS and REQUESTS[family].is_too_hard


def remark_on(family: str) -> str:
    return REQUESTS[family].remark if family in REQUESTS else ""


class ExampleBook:
    """Example prompts by family, shared by all visitors. Thread-safe.

    Remembers the prompts that it returned, so that answers to an unchanged prompt can be checked.
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
        """Button labels by set of examples, then by family."""
        for page in self._pages.values():
            for task in page:
                self._remember(task)

    def prompt(self, family: str, number: int) -> str:
        with self._lock:
            page = self._pages[family]
            if family in self.families[TASKS]:
                self._lengthen(family, page, number)
            return page[number % len(page)].prompt

    def several(self, chosen: str, first: int, count: int) -> list[str]:
        """Return ``count`` prompts of a set, starting with number ``first``, taken from its
        families in turn. Families that are too hard are skipped.
        """
        families = [family for family in self.families[chosen] if not is_too_hard(family)]
        positions = [divmod(number, len(families)) for number in range(first, first + count)]
        return [self.prompt(families[family], number) for number, family in positions]

    def nearest(self, text: str) -> Task:
        wanted = _words(text)

        def likeness(task: Task) -> float:
            words = _words(task.prompt)
            return len(wanted & words) / max(len(wanted | words), 1)

        with self._lock:
            return max(
                (task for name in self.families[TASKS] for task in self._pages[name]), key=likeness
            )

    def task(self, prompt: str) -> Task | None:
        """Return the known task with exactly this prompt, or None."""
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
