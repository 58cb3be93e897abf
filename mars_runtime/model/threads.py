"""Choose the number of threads of forward passes from the number of idle cores.

They synchronise hundreds of times per pass: two beside a busy process are slower than one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from mars_runtime.system.machine import num_cores

Result = TypeVar("Result")

WINDOW_SECONDS = 0.1  # how long idle cores are measured; the system counts in steps of 0.01
TOLERANCE = 0.4  # share of a core that other processes may use while it counts as idle
STAT = Path("/proc/stat")
IDLE_COLUMNS = (4, 5)  # idle and iowait, after the name of the core (man 5 proc)


def idle_seconds() -> float | None:
    """Core seconds; None if unknown."""
    try:
        cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [line.split() for line in STAT.read_text(encoding="ascii").splitlines()]
        ticks = [int(row[at]) for row in rows if row and row[0] in cores for at in IDLE_COLUMNS]
        return sum(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # not on Linux
        pass
    try:
        import psutil
    except ImportError:
        return None
    return float(psutil.cpu_times().idle)


class CoreTimes(NamedTuple):
    clock: float
    idle: float
    own: float

    @classmethod
    def now(cls) -> CoreTimes | None:
        idle = idle_seconds()
        return None if idle is None else cls(time.perf_counter(), idle, time.process_time())

    def num_free(self, end: CoreTimes) -> int:
        """Count cores that were idle or used by this process."""
        free = (end.idle - self.idle + end.own - self.own) / (end.clock - self.clock)
        return max(1, int(free + TOLERANCE))


class Threads:
    def __init__(self, read: Callable[[], CoreTimes | None] = CoreTimes.now) -> None:
        self.fixed: int | None = None
        self._read = read
        self._start: CoreTimes | None = None
        self._num_free = num_cores()

    def begin_run(self) -> None:
        """Measure idle cores from now on; passes after WINDOW_SECONDS use the result."""
        if self._start is None or self._is_over():
            self._start = self._read()

    def measure(self) -> None:
        """Blocks for WINDOW_SECONDS."""
        self._start = self._read()
        time.sleep(WINDOW_SECONDS)
        self._finish()

    def count(self, most: int) -> int:
        if self._is_over():
            self._finish()
        return min(self.fixed or self._num_free, most)

    def _is_over(self) -> bool:
        start = self._start
        return start is not None and time.perf_counter() - start.clock >= WINDOW_SECONDS

    def _finish(self) -> None:
        start, self._start = self._start, None
        end = self._read()
        if start is not None and end is not None and end.clock > start.clock:
            self._num_free = start.num_free(end)


GRID = (
    *((1, width) for width in (1, 2, 3, 5, 6, 7, 8, 11, 16, 17, 23, 33, 64, 100, 200)),
    *((rows, width) for rows in (2, 4, 8) for width in (3, 8)),
)
"""Shapes of forward passes, (rows, tokens per row), for which ``shared_from`` compares results."""
STARTS = (1, 16, 64)
CHECK_SECONDS = 2.0


def limit_threads() -> None:
    if torch.get_num_threads() > num_cores():
        torch.set_num_threads(num_cores())


@contextmanager
def one_thread() -> Iterator[None]:
    """For small operations, between which other threads would only spin."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchThreads(Threads):
    """The number of threads can change the last bits of a product with few rows, so passes of fewer
    than ``shared_from`` positions, or all if it is None, use ``base`` threads.
    """

    def __init__(self, base: int, most: int, shared_from: int | None) -> None:
        super().__init__()
        self._base, self._most, self._shared_from = base, most, shared_from

    def run(self, width: int, call: Callable[[], Result]) -> Result:
        is_narrow = self._shared_from is None or width < self._shared_from
        count = self._base if is_narrow else self.count(self._most)
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)
        return call()


@torch.inference_mode()
def shared_from(model: Any, most: int) -> int | None:
    """Return the width from which 1 and ``most`` threads compute equal bits, or None. Changes
    PyTorch's number of threads.
    """
    cache = model.new_cache(max(rows for rows, _ in GRID), max(width for _, width in GRID))
    generator = torch.Generator().manual_seed(0)
    until = time.perf_counter() + CHECK_SECONDS
    last = 0  # the largest number of positions at which results differed
    for rows, width in GRID:
        shape = rows, width
        tokens = torch.randint(0, model.config.vocab_size, shape, generator=generator)
        results = []
        for count in (1, most):
            torch.set_num_threads(count)
            hidden = model.hidden(tokens, cache)
            results.append((hidden, model.logits(hidden, slice(0, width))))
        if not all(map(torch.equal, *results)):
            last = max(last, rows * width)
        if time.perf_counter() > until:
            return None
    return next((start for start in STARTS if start > last), None)
