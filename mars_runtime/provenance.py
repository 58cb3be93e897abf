"""Provenance of figures: machine, versions, commit, date and weights, and how idle the machine was.

Three measurements show how idle it was: the load before the start, the share of this process's
cores that other processes used while measuring (Linux only), and the spread of the repeats of AR.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.machine import num_cores, processor, versions
from mars_runtime.model.fetch import SUMS, read_sums, sha256_of
from mars_runtime.model.registry import REGISTRY, registry

BUSY_LOAD = 0.3  # maximum load before the start, as a share of the cores
BUSY_OTHERS = 0.1  # maximum share of the cores used by others while measuring
BUSY_SPREAD = 0.15  # maximum ratio of the slowest to the fastest repeat of AR, minus 1

_FIELDS = 8  # user, nice, system, idle, iowait, irq, softirq, steal
_IDLE = (3, 4)


def provenance(*checkpoints: str) -> dict[str, Any]:
    """Return the provenance of this run as JSON values.

    checkpoints: names of checkpoints without fingerprints recorded elsewhere.
    """
    weights = [{"checkpoint": name, "fingerprint": shipped(name)} for name in checkpoints]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "hardware": hardware(),
        "versions": dict(versions()),  # callers that measure other programs add their versions
        **({"weights": weights} if weights else {}),
    }


def hardware() -> dict[str, Any]:
    """Return the processor, the cores this process may use, memory in bytes, and GPU names.

    The memory is None on Windows.
    """
    import torch

    memory = None
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "processor": processor(),
        "cores": num_cores(),
        "memory_bytes": memory,
        "gpus": names,
    }


def commit() -> str | None:
    """Return the commit of this source, with ``+changes`` if tracked files differ; None without
    git."""
    here = Path(__file__).resolve().parent  # folder of the runtime
    head = _git(here, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+changes" if _git(here, "status", "--porcelain", "-uno", ".") else "")


def fingerprint(weight_files: Iterable[Path]) -> str:
    """Return a short hash of a checkpoint's weights, from the names and SHA-256 sums of its
    files."""
    return fingerprint_of_sums((path.name, sha256_of(path)) for path in weight_files)


def fingerprint_of_sums(sums: Iterable[tuple[str, str]]) -> str:
    """Return ``fingerprint`` of files with known names and SHA-256 sums."""
    lines = "".join(f"{digits}  {name}\n" for name, digits in sums)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def shipped(name: str) -> str | None:
    """Return the fingerprint of a bundled or pinned checkpoint, or None for any other.

    It is computed from the registry and the sums stored with the checkpoint, without its files.
    """
    entry = registry().get(name)
    folder = REGISTRY.parent / ((entry.path or entry.adapter if entry else None) or name)
    if not (folder / SUMS).is_file():
        return None
    gguf = [(entry.gguf.file, entry.gguf.sha256)] if entry and entry.gguf else []
    sums = sorted(entry for entry in read_sums(folder).items() if entry[0].endswith(".safetensors"))
    return fingerprint_of_sums([*gguf, *sums])


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command, or None if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Quiet:
    """Measurements of how idle the machine was; shares from 0 to 1, None if unknown."""

    cores: int
    load_before: float
    others: float | None
    ar_spread: float | None

    @property
    def doubts(self) -> list[str]:
        """A sentence for each reason to doubt the timings."""
        doubts = []
        if self.load_before > BUSY_LOAD * self.cores:
            doubts.append(f"the load before the start was {self.load_before:.1f} on {_of(self)}")
        if self.others is not None and self.others > BUSY_OTHERS:
            doubts.append(f"other processes used {self.others:.0%} of {_of(self)}")
        if self.ar_spread is not None and self.ar_spread > BUSY_SPREAD:
            doubts.append(f"repeated AR runs differ by {self.ar_spread:.0%}")
        return doubts


def _of(quiet: Quiet) -> str:
    return f"{quiet.cores} {'core' if quiet.cores == 1 else 'cores'}"


class Others:
    """Measures how much of this process's cores other processes use, from its creation on."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._start = self._read()
        self._own = _own_seconds()

    def share(self) -> float | None:
        """Return the share of the cores' time that others used, or None if the system does not
        report it.

        A child of this process counts as another process until it has ended.
        """
        now = self._read()
        if self._start is None or now is None:
            return None
        busy, total = now[0] - self._start[0], now[1] - self._start[1]
        if total <= 0:
            return None
        return max(0.0, busy - (_own_seconds() - self._own)) / total

    def _read(self) -> tuple[float, float] | None:
        """Return the busy and total seconds of the cores that this process may use."""
        try:
            lines = self._stat.read_text(encoding="ascii").splitlines()
            ticks = os.sysconf("SC_CLK_TCK")
            cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        except (OSError, ValueError, AttributeError):  # not on Linux
            return None
        return core_seconds(lines, cores, ticks)


def core_seconds(lines: list[str], cores: set[str], ticks: int) -> tuple[float, float] | None:
    """Return the busy and total seconds of ``cores`` from the lines of /proc/stat (man 5 proc)."""
    rows = [line.split() for line in lines]
    counts = [
        [int(part) for part in parts[1 : 1 + _FIELDS]]
        for parts in rows
        if parts and parts[0] in cores
    ]
    if not counts:
        return None
    total = sum(map(sum, counts))
    idle = sum(core[at] for core in counts for at in _IDLE)
    return (total - idle) / ticks, total / ticks


def _own_seconds() -> float:
    """Return the CPU seconds of this process and of its ended children (a peer may be one)."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
