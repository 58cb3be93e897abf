"""The file of answers: JSON lines, only ever appended to, so that a run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PATTERN = "answers*.jsonl"


@dataclass(frozen=True, slots=True)
class Record:
    """One answered prompt. ``end``: eos, length or loop (cut before the repetition)."""

    key: str
    kind: str
    held_out: bool
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    end: str


def key_of(prompt: Sequence[int]) -> str:
    """A short name of a prompt, the same in every process."""
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:16]


class Answers:
    """Appends records to one file; each line is written in one piece. A run that was killed may
    have left half a line, which is cut off."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def append(self, records: Sequence[Record]) -> None:
        """Write whole lines and hand them to the system."""
        lines = "".join(json.dumps(asdict(r), separators=(",", ":")) + "\n" for r in records)
        with self._path.open("ab", buffering=0) as file:
            file.write(lines.encode())


def read(folder: Path) -> Iterator[Record]:
    """Every whole record of every answer file in ``folder``, in the order of names and lines."""
    for path in sorted(folder.glob(PATTERN)):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    found = json.loads(line)
                    found["prompt"] = tuple(found["prompt"])
                    found["response"] = tuple(found["response"])
                    yield Record(**found)
