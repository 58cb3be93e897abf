"""Where figures come from: machine, versions, commit, date, weights. Knows no figure itself."""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mars_runtime.machine import num_cores, processor, versions

_SAMPLE = 1 << 20
"""Bytes read at each end of a weight file: training moves every weight, so a sample tells."""


def provenance() -> dict[str, Any]:
    """Everything about this run that a reader of its figures may ask for."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "hardware": hardware(),
        "versions": versions(),
    }


def hardware() -> dict[str, Any]:
    """Processor, its cores that this process may use, memory in bytes, and GPUs by name."""
    import torch

    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "processor": processor(),
        "cores": num_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": names,
    }


def commit() -> str | None:
    """The commit of this source, with ``+changes`` where tracked files differ; None without git."""
    here = Path(__file__).resolve().parents[2]  # of the runtime
    head = _git(here, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+changes" if _git(here, "status", "--porcelain", "-uno", ".") else "")


def fingerprint(weight_files: Iterable[Path]) -> str:
    """A short hash of a checkpoint's weights: names, sizes, both ends of every file."""
    found = hashlib.sha256()
    for path in weight_files:
        size = path.stat().st_size
        found.update(f"{path.name}:{size};".encode())
        with path.open("rb") as file:
            found.update(file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            found.update(file.read(_SAMPLE))
    return found.hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where it says nothing usable."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
