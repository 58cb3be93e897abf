"""Where figures come from: machine, versions, commit, date, weights. Knows no figure itself."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
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
        "processor": _processor(),
        "cores": num_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": names,
    }


def num_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Python and the packages that do the arithmetic."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of this source, with ``+changes`` where tracked files differ; None without git."""
    here = Path(__file__).resolve().parent
    head = _git(here, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+changes" if _git(here, "status", "--porcelain", "-uno", ".") else "")


def fingerprint(folder: Path) -> str:
    """A short hash of the weights in a checkpoint folder: names, sizes, both ends of every file."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        found.update(f"{path.name}:{size};".encode())
        with path.open("rb") as file:
            found.update(file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            found.update(file.read(_SAMPLE))
    return found.hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where it says nothing usable."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
