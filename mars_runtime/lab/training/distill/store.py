"""The file of answers: JSON lines that are only appended, so that a run can continue."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PATTERN = "answers*.jsonl"


@dataclass(frozen=True, slots=True)
class DistillRecord:
    """One answered prompt. ``end``: eos, length or loop (cut before the repetition)."""

    key: str
    kind: str
    held_out: bool
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    end: str


def key_of(prompt: Sequence[int]) -> str:
    """Return a short hash of a prompt, the same in every process."""
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:16]


class AnswerFile:
    """Appends records to one file. A truncated last line of a killed run is removed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def append(self, records: Sequence[DistillRecord]) -> None:
        """Write whole lines without buffering."""
        lines = "".join(json.dumps(asdict(r), separators=(",", ":")) + "\n" for r in records)
        with self._path.open("ab", buffering=0) as file:
            file.write(lines.encode())


def read(folder: Path) -> Iterator[DistillRecord]:
    """Yield the complete records of all answer files in ``folder``, by file name and line."""
    for path in sorted(folder.glob(PATTERN)):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    record = json.loads(line)
                    record["prompt"] = tuple(record["prompt"])
                    record["response"] = tuple(record["response"])
                    yield DistillRecord(**record)
