"""The loop of a training: a log, resumable saves, and a stop after the current step at Ctrl-C."""

from __future__ import annotations

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import torch
from rich.console import Console

from mars_runtime.display.terminal import progress_bars

SAVE_SECONDS = 240.0
LOG_STEPS = 20
STATE = "resume.pt"


class Training(ABC):
    """parts: what ``save`` stores by ``state_dict``. progress: a dataclass of plain values with
    ``step`` and ``unit``, which counts trained items."""

    parts: dict[str, Any]
    progress: Any
    unit: str

    def __init__(self, name: str, out: Path, total: int, log: str) -> None:
        self.name, self.out, self.total = name, out, total
        self._log = out / log

    @abstractmethod
    def steps(self) -> Iterator[dict[str, float]]: ...

    @property
    def done(self) -> int:
        return int(self.progress.step)

    def run(self) -> bool:
        """Save every few minutes and at the end. The first SIGINT or SIGTERM ends the run after the
        current step, the second one at once; return whether there was one."""
        saved = start = time.monotonic()
        first: int = getattr(self.progress, self.unit)
        smooth: dict[str, float] = {}
        with interruptible() as interrupt, progress_bars(Console()) as bar:
            task = bar.add_task(self.name, total=self.total)
            for terms in self.steps():
                for name, value in terms.items():
                    smooth[name] = 0.95 * smooth.get(name, value) + 0.05 * value
                count: int = getattr(self.progress, self.unit)
                rate = round((count - first) / max(1e-9, time.monotonic() - start))
                if self.progress.step % LOG_STEPS == 0:
                    line = {"step": self.progress.step, self.unit: count, "per_second": rate}
                    self.log(line | smooth)
                shown = " ".join(f"{name} {value:.3f}" for name, value in smooth.items())
                text = f"{self.name} {shown} {rate:,} {self.unit}/s"
                bar.update(task, completed=self.done, description=text)
                if interrupt.is_set():
                    break
                if time.monotonic() - saved > SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
            self.save()
        return interrupt.is_set()

    def log(self, line: Mapping[str, Any]) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def save(self) -> None:
        state = {name: part.state_dict() for name, part in self.parts.items()}
        self.out.mkdir(parents=True, exist_ok=True)
        partial = self.out / f"{STATE}.partial"
        torch.save(state | {"progress": asdict(self.progress)}, partial)
        partial.replace(self.out / STATE)

    def resume(self) -> None:
        """Raises many types of errors for an invalid file."""
        device = torch.get_default_device()
        state = torch.load(self.out / STATE, weights_only=True, map_location=device)
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        self.progress = type(self.progress)(**state["progress"])


@contextmanager
def interruptible() -> Iterator[Event]:
    received = Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        received.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        restore()
