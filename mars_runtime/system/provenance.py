"""Record the provenance of measurements: date, commit, machine, versions, and its idleness."""

from __future__ import annotations

import datetime
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.system.machine import num_cores, processor, versions

RUNTIME = str(Path(__file__).resolve().parents[1])
BUSY_LOAD = 0.3  # maximum load before the start, as a share of the cores
BUSY_OTHERS = 0.1  # maximum share of the cores that other processes may use while measuring
BUSY_SPREAD = 0.15  # maximum ratio of the slowest to the fastest AR run, minus 1

_FIELDS = 8  # columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal
_IDLE = (3, 4)  # indices of the columns idle and iowait


def provenance() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "hardware": hardware(),
        "versions": dict(versions()),  # a copy, to which callers add versions of other programs
    }


def hardware() -> dict[str, Any]:
    import torch

    memory = None
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    machine = {"processor": processor(), "cores": num_cores()}
    return machine | {"memory_bytes": memory, "gpus": names}


def commit() -> str | None:
    """``+changes`` is appended if tracked files were modified."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+changes" if _git("status", "--porcelain", "-uno", RUNTIME) else "")


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", RUNTIME, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Quiet:
    """How idle the machine was during a measurement; None if unknown.

    others: share of the cores that other processes used.
    ar_spread: time of the slowest AR run divided by that of the fastest, minus 1.
    """

    cores: int
    load_before: float
    others: float | None
    ar_spread: float | None

    @property
    def doubts(self) -> list[str]:
        """The reasons to doubt the timings, as clauses."""
        doubts, cores = [], f"{self.cores} {'core' if self.cores == 1 else 'cores'}"
        if self.load_before > BUSY_LOAD * self.cores:
            doubts.append(f"the load before the start was {self.load_before:.1f} on {cores}")
        if self.others is not None and self.others > BUSY_OTHERS:
            doubts.append(f"other processes used {self.others:.0%} of {cores}")
        if self.ar_spread is not None and self.ar_spread > BUSY_SPREAD:
            doubts.append(f"repeated AR runs differ by {self.ar_spread:.0%}")
        return doubts


class Others:
    """Share of this process's cores that other processes use, a running child included."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._read()
        self._start_cpu = _cpu_seconds()

    def share(self) -> float | None:
        current = self._read()
        if self._start is None or current is None:
            return None
        busy, total = current[0] - self._start[0], current[1] - self._start[1]
        if total <= 0:
            return None
        return max(0.0, busy - (_cpu_seconds() - self._start_cpu)) / total

    def _read(self) -> tuple[float, float] | None:
        try:
            lines = self._stat.read_text(encoding="ascii").splitlines()
            ticks = os.sysconf("SC_CLK_TCK")
            cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        except (OSError, ValueError, AttributeError):  # not on Linux
            return None
        return core_seconds(lines, cores, ticks)


def core_seconds(lines: list[str], cores: set[str], ticks: int) -> tuple[float, float] | None:
    """Return the busy and total seconds of ``cores``, or None if the lines lack them.

    lines: the content of /proc/stat (see man 5 proc). ticks: clock ticks per second.
    """
    rows = [line.split() for line in lines]
    counts = [list(map(int, row[1 : 1 + _FIELDS])) for row in rows if row and row[0] in cores]
    if not counts:
        return None
    total = sum(map(sum, counts))
    idle = sum(core[at] for core in counts for at in _IDLE)
    return (total - idle) / ticks, total / ticks


def _cpu_seconds() -> float:
    return sum(os.times()[:4])  # of this process and its ended children, user and system
