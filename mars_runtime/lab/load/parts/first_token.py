"""What does it cost a newcomer, and save the others, that its prompt is read in short parts?"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.backend import READ_ALONE, READ_BESIDE, CheckpointBackend
from mars_runtime.events import Step
from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.load.document import Section, told
from mars_runtime.lab.load.parts.base import Bench, Part
from mars_runtime.settings import DecodeSettings
from mars_runtime.statistics import median

if TYPE_CHECKING:
    from mars_runtime.decoders.base import Batch

TRIALS = 9
PROMPT_TOKENS = 320  # of the newcomer
BUSY_TOKENS = 400  # of an answer beside it, which is never waited for
PATIENCE = 60.0
PARTS, AT_ONCE, IDLE = f"in parts of {READ_BESIDE}", "at once", "nobody else"


class ReadsAtOnce(CheckpointBackend):
    """Reads a prompt in one go, whoever waits: what the engine would be without parts."""

    def batch(self) -> Batch:
        """The same rows, deaf to how much they are to read."""
        return cast("Batch", _Deaf(super().batch()))


class _Deaf:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def read(self, number: int, at_most: int) -> int:
        return self._batch.read(number, READ_ALONE)


class FirstToken(Part):
    """All rows but one decode plain AR; then a long prompt arrives. Seconds of real time from then
    to its first token, and the longest that another row meanwhile waited from token to token."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._first: dict[str, list[float]] = defaultdict(list)
        self._gaps: dict[str, list[float]] = defaultdict(list)

    def measure(self) -> Iterator[str]:
        """Both ways of reading in turn, and the same prompt without company."""
        rows = self._bench.order.rows
        backend = ReadsAtOnce(self._bench.checkpoint, keeps=False)
        with closing(Engine(backend, max_runs=rows)) as deaf:
            deaf.costs()
            for turn in range(TRIALS):
                both = [(PARTS, self._bench.engine), (AT_ONCE, deaf)]
                for name, engine in both if turn % 2 else both[::-1]:
                    self._try(name, engine, rows - 1)
                self._try(IDLE, self._bench.engine, 0)
                yield ", ".join(f"{name} {each[-1]:.3f} s" for name, each in self._first.items())

    def section(self) -> Section | None:
        """Medians, and how many times the seconds of reading at once."""
        if not self._first.get(PARTS) or not self._first.get(AT_ONCE):
            return None
        lines = []
        for name in (AT_ONCE, PARTS, IDLE):
            if not (first := self._first.get(name)):
                continue
            gaps = self._gaps.get(name)
            pairs = zip(first, self._first[AT_ONCE], strict=False)
            times = median([mine / other for mine, other in pairs])
            gap = median(gaps) if gaps else None
            cells = (told(median(first), 1000, ".0f"), told(times), told(gap, 1000, ".0f"))
            lines.append((name, *cells))
        columns = ("the prompt is read", "first token, ms", "times at once", "longest wait, ms")
        rows = self._bench.order.rows - 1
        others = "another decodes" if rows == 1 else f"{rows} others decode"
        title = (
            f"A prompt of {self._length} tokens arrives while {others}: its first "
            "token, and the longest that another waited for its next"
        )
        data = {"first_seconds": dict(self._first), "gap_seconds": dict(self._gaps)}
        return Section("first_token", (), Table(title, columns, tuple(lines)), data)

    @property
    def _length(self) -> int:
        return min(PROMPT_TOKENS, self._bench.engine.capacity // 2)

    def _try(self, name: str, engine: Engine, num_busy: int) -> None:
        """One newcomer among so many."""
        bench, settings = self._bench, DecodeSettings("ar", max_new_tokens=2)
        asks = bench.asks(num_busy + 24, bench.order.seed)
        ids = [token for ask in asks for token in ask.prompt_ids][: self._length]
        most = min(BUSY_TOKENS, engine.capacity // 2)
        long = replace(settings, max_new_tokens=most)
        busy = [engine.submit(Request(ask.prompt_ids, long)) for ask in asks[:num_busy]]
        try:
            for run in busy:
                _await_step(run)
            watch = _Watch(busy)
            began = time.perf_counter()
            _await_step(engine.submit(Request(ids, settings)))
            ended = time.perf_counter()
            self._first[name].append(ended - began)
            if busy:
                self._gaps[name].append(watch.longest(began, ended))
        finally:
            for run in busy:
                run.cancel()
            for run in busy:
                run.wait(PATIENCE)


class _Watch:
    """When the first of these runs wrote, by a thread of its own."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._moments = [time.perf_counter()]
        for run in runs[:1]:
            threading.Thread(target=self._follow, args=(run,), daemon=True).start()

    def _follow(self, run: Run) -> None:
        for event in run:
            if isinstance(event, Step):
                self._moments.append(time.perf_counter())

    def longest(self, began: float, ended: float) -> float:
        """The longest wait from token to token that was not over before ``began``, nor begun after
        ``ended``."""
        moments = [*self._moments, max(ended, self._moments[-1])]
        gaps = [b - a for a, b in pairwise(moments) if b >= began and a <= ended]
        return max(gaps, default=0.0)


def _await_step(run: Run) -> None:
    for event in run:
        if isinstance(event, Step):
            return
