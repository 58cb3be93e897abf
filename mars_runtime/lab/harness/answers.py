"""Finished answers on disk, a JSON line each, so that a benchmark goes on where it stopped.

Knows nothing of tasks beyond their names.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mars_runtime.lab.harness.generation import Wanted, Written


@dataclass(frozen=True, slots=True)
class Record:
    """One answer. num_tokens, num_forwards: of all of it, prefill apart; kept_tokens,
    kept_forwards: up to where it begins to repeat itself, equal to these where it does not.
    is_ended: by the model's own end of turn or a stop string, not by the limit."""

    task: str
    document: int
    text: str
    num_tokens: int
    num_forwards: int
    kept_tokens: int
    kept_forwards: int
    is_ended: bool
    is_looped: bool


def record(task: str, document: int, written: Written, limit: int) -> Record:
    """What is kept of an answer that could have had ``limit`` tokens."""
    whole, kept = written.output, written.output.without_loop()
    return Record(
        task=task,
        document=document,
        text=written.text,
        num_tokens=len(whole.tokens),
        num_forwards=whole.num_forwards,
        kept_tokens=len(kept.tokens),
        kept_forwards=kept.num_forwards,
        is_ended=whole.is_ended or len(whole.tokens) < limit,
        is_looped=kept.is_looped,
    )


class AnswerStore:
    """Records by key, in memory and, where a path is given, appended to a file. A line that is
    broken, as by a crash, is passed over and its answer written again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Record] = _read(path) if path and path.exists() else {}

    def get(self, key: str) -> Record | None:
        """The answer of this key, if it is there."""
        return self._found.get(key)

    def __getitem__(self, key: str) -> Record:
        return self._found[key]

    def put(self, key: str, one: Record) -> None:
        """Keep an answer; it is on disk when this returns."""
        self._found[key] = one
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, **asdict(one)}, ensure_ascii=False)
        # Starting with a line break closes whatever a crash left behind.
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + line + "\n")


def key_of(fingerprint: str, arithmetic: str, task: str, document: int, wanted: Wanted) -> str:
    """Equal for two answers exactly when one stands for the other."""
    settings = asdict(wanted.settings)
    parts = [fingerprint, arithmetic, task, document, wanted.prompt, settings, wanted.stops]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, Record]:
    found: dict[str, Record] = {}
    # Not splitlines(): text may hold U+2028 and the like, which JSON leaves as they are.
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            told = json.loads(line)
            key = told.pop("key")
            found[key] = Record(**told)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found
