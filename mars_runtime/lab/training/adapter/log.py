"""How far a run of adapter training has come, and its log. Knows no model and no data."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Progress:
    """Where a run stands. seconds: of processor time; best: held-out tokens per forward."""

    step: int = 0
    masks: int = 0
    seconds: float = 0.0
    best: float = 0.0
    best_step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


class Log:
    """One JSON line every ten steps and at each measurement, on one process."""

    def __init__(self, path: Path, is_writer: bool) -> None:
        self._path, self._is_writer = path, is_writer
        self._recent: list[dict[str, float]] = []

    def step(self, progress: Progress, terms: dict[str, float]) -> None:
        """Gather the terms of a step."""
        self._recent.append(terms)
        if progress.step % 10:
            return
        mean = {
            name: round(sum(t[name] for t in self._recent) / len(self._recent), 4) for name in terms
        }
        self._recent = []
        rate = round(progress.masks / max(1e-9, progress.seconds))
        head = {"step": progress.step, "masks": progress.masks}
        self.write({**head, "seconds": round(progress.seconds), "masks_per_second": rate, **mean})

    def write(self, line: dict[str, Any]) -> None:
        """Append one line and show it."""
        if not self._is_writer:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"time": time.strftime("%H:%M:%S"), **line})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        print(text, flush=True)
