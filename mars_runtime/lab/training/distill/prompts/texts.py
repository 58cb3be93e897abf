"""Passages and questions from the folder of public texts, read once, in a seeded order.

Knows the files and their fields; what is asked about them is decided in the modules beside it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.lab.training.distill.prompts.base import Turns

MIN_WORDS, MAX_WORDS = 40, 150


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its short answer and the passage that holds it."""

    passage: str
    question: str
    answer: str


class Texts:
    """The training texts of one folder. Raises FileNotFoundError for a file that is missing."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed

    def random(self, name: str) -> random.Random:
        """A generator of its own for each use, the same in every process."""
        return random.Random(f"{self._seed}/{name}")

    def instructions(self) -> Iterator[Turns]:
        """General requests, as they were written."""
        rows = self._shuffled("chat_prompts_train.jsonl")
        return ((row["prompt"],) for row in rows if 8 <= len(row["prompt"]) <= 1200)

    def maths(self) -> Iterator[Turns]:
        """Word problems of primary school, alone or with a request for steps."""
        draw = self.random("maths")
        for row in self._shuffled("gsm8k_train.jsonl"):
            question = row["question"].strip()
            yield (draw.choice(MATHS_FORMS).format(question=question),)

    def passages(self) -> list[str]:
        """Passages of 40 to 150 words from tales and children's books, shuffled."""
        found = [row["text"] for row in self._rows("fairytale_sections_train.jsonl")]
        classics = (self._folder / "childrens_classics.txt").read_text(encoding="utf-8")
        found += re.split(r"\n\s*\n", re.sub(r"<<<BOOK [^>]*>>>", "\n\n", classics))
        tidy = (" ".join(text.split()) for text in found)
        kept = [text for text in tidy if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
        self.random("passages").shuffle(kept)
        return kept

    def questions(self) -> list[Question]:
        """Questions on tales whose passage is one section, shuffled."""
        sections = {
            (row["tale"], str(row["section"])): " ".join(row["text"].split())
            for row in self._rows("fairytale_sections_train.jsonl")
        }
        found = [
            Question(sections[key], row["question"], row["answer"])
            for row in self._rows("fairytale_questions_train.jsonl")
            if (key := (row["tale"], str(row["sections"]))) in sections
            and len(sections[key].split()) <= MAX_WORDS
        ]
        self.random("questions").shuffle(found)
        return found

    def _rows(self, name: str) -> list[dict[str, Any]]:
        lines = (self._folder / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _shuffled(self, name: str) -> list[dict[str, Any]]:
        rows = self._rows(name)
        self.random(name).shuffle(rows)
        return rows


MATHS_FORMS = (
    "{question}",
    "{question}",
    "{question}",
    "{question} Let's think step by step.",
    "{question} Explain your reasoning.",
    "Solve this problem and show your work.\n\n{question}",
    "{question} Give the final answer on its own line.",
)
