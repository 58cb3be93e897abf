"""Training prompts must share no run of 13 words with a benchmark: the filter for that.

Knows texts and files of JSON lines, nothing about what they are for.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

RUN = 13


def words(text: str) -> list[str]:
    """Lower-case words and numbers, punctuation left out."""
    return re.findall(r"[^\W_]+", text.lower())


def runs(text: str) -> set[int]:
    """Hashes of all runs of 13 words."""
    found = words(text)
    return {hash(tuple(found[i : i + RUN])) for i in range(len(found) - RUN + 1)}


class Benchmarks:
    """The runs of words of the texts that no training prompt may share."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[int] = set()
        for text in texts:
            self._runs |= runs(text)

    @classmethod
    def read(cls, folder: Path) -> Benchmarks:
        """Every string in every ``*.jsonl`` and ``*.jsonl.gz`` of a folder."""
        return cls(text for path in sorted(folder.glob("*.jsonl*")) for text in _strings(path))

    def share_a_run_with(self, text: str) -> bool:
        """Say whether 13 words in a row of ``text`` stand in a benchmark."""
        return not self._runs.isdisjoint(runs(text))


def _strings(path: Path) -> Iterator[str]:
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield from _leaves(json.loads(line))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
