"""Store answers as lines of JSON. Lines are only appended, so an interrupted run can continue."""

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
    """end: eos, length or loop."""

    key: str
    kind: str
    held_out: bool
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    end: str


def key_of(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:16]


class AnswerFile:
    """An incomplete last line of an interrupted run is removed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def append(self, records: Sequence[DistillRecord]) -> None:
        lines = "".join(json.dumps(asdict(r), separators=(",", ":")) + "\n" for r in records)
        with self._path.open("ab", buffering=0) as file:
            file.write(lines.encode())


def read(folder: Path) -> Iterator[DistillRecord]:
    """An incomplete last line is skipped."""
    for path in sorted(folder.glob(PATTERN)):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    record = json.loads(line)
                    record["prompt"] = tuple(record["prompt"])
                    record["response"] = tuple(record["response"])
                    yield DistillRecord(**record)
