"""What a training run says of itself: smoothed losses in a file, a bar on the terminal.

Knows no model.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class Log:
    """Smoothed loss terms and tokens/s, one JSON line every 20 steps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.terms: dict[str, float] = {}
        self._began = time.monotonic()
        self._tokens = -1

    def smooth(self, terms: dict[str, float]) -> dict[str, float]:
        """Exponential mean of the loss terms."""
        for name, value in terms.items():
            self.terms[name] = 0.95 * self.terms.get(name, value) + 0.05 * value
        return self.terms

    def write(self, step: int, tokens: int, terms: dict[str, float]) -> str:
        """Log now and then; returns a line for the progress bar."""
        if self._tokens < 0:
            self._began, self._tokens = time.monotonic(), tokens
        rate = (tokens - self._tokens) / max(1e-9, time.monotonic() - self._began)
        shown = " ".join(f"{name} {value:.3f}" for name, value in terms.items())
        if step % 20 == 0:
            line = {"step": step, "tokens": tokens, "per_second": round(rate), **terms}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return f"{shown} {rate:,.0f} tokens/s"


def progress_bar() -> Progress:
    """A bar of a run's tokens."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.1f}%"))
    return Progress(*columns, TextColumn("{task.fields[info]}"), TimeRemainingColumn())
