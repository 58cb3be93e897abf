"""Prompts unlike anything a chat model's adapter was trained on, kind by kind.

Written for this repository and never trained on. Some have words that a right answer holds; they
tell whether the model still follows, not how well it writes. Knows no model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from mars_runtime.tasks.base import Task
from mars_runtime.tasks.requests.notes import NOTES
from mars_runtime.tasks.requests.passages import PASSAGES

SHIFTED = ("languages", "odd_code", "tables", "long")
"""Other languages, code in languages that are rare, tables, and prompts of up to about 4,000
tokens."""
_FILE = Path(__file__).with_suffix(".json")


def shifted_tasks(kind: str, seed: int, count: int) -> list[Task]:
    """The first ``count`` prompts of a kind; the seed orders the passages of long ones."""
    return [_task(kind, told, seed) for told in _prompts()[kind][:count]]


def says_right(task: Task, text: str) -> bool:
    """Whether the text holds one of the words of a right answer."""
    return any(word.lower() in text.lower() for word in json.loads(task.expected))


def _task(kind: str, told: Mapping[str, Any], seed: int) -> Task:
    prompt = told["prompt"]
    if kind == "long":
        rng = random.Random(f"{seed}:{prompt}")
        texts = [rng.choice((*PASSAGES, *NOTES)) for _ in range(told["passages"])]
        texts.insert(rng.randrange(len(texts)), told["hidden"])
        prompt = "\n\n".join([*texts, prompt])
    expected = json.dumps(told["right"], ensure_ascii=False) if told["right"] else ""
    return Task(kind, "shifted", prompt, "", expected)


@lru_cache(maxsize=1)
def _prompts() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return found
