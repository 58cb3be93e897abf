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
from mars_runtime.model.checksums import SUMS, read_sums, sha256_of
from mars_runtime.model.registry import REGISTRY, registry


def provenance(*checkpoints: str) -> dict[str, Any]:
    """Everything about this run that a reader of its figures may ask for. checkpoints: names of
    those that had a part in it and are not told of, with their fingerprints, elsewhere."""
    weights = [{"checkpoint": name, "fingerprint": shipped(name)} for name in checkpoints]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "hardware": hardware(),
        "versions": versions(),
        **({"weights": weights} if weights else {}),
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
    """A short hash of a checkpoint's weights, whole: of the names and sums of their files."""
    return fingerprint_of_sums((path.name, sha256_of(path)) for path in weight_files)


def fingerprint_of_sums(sums: Iterable[tuple[str, str]]) -> str:
    """``fingerprint`` of files whose names and SHA-256 sums are known."""
    lines = "".join(f"{digits}  {name}\n" for name, digits in sums)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def shipped(name: str) -> str | None:
    """The fingerprint of a checkpoint as it is bundled or, where it is fetched, pinned; read off
    the sums beside it and in the registry, without its files. None for any other."""
    entry = registry().get(name)
    folder = REGISTRY.parent / ((entry.path or entry.adapter if entry else None) or name)
    if not (folder / SUMS).is_file():
        return None
    gguf = [(entry.gguf.file, entry.gguf.sha256)] if entry and entry.gguf else []
    own = sorted(each for each in read_sums(folder).items() if each[0].endswith(".safetensors"))
    return fingerprint_of_sums([*gguf, *own])


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where it says nothing usable."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
