"""On what and with what this process computes, in words, and where it may keep what it makes."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import stat
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

NO_MEMORY = re.compile(
    r"can(no|')t allocate memory|(not enough|out of) memory|bad_alloc|can't start new thread"
    r"|failed to map segment",
    re.IGNORECASE,
)
"""How the system, torch and other libraries report that no memory is left."""
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "gradio")


def is_memory_short(error: BaseException) -> bool:
    """Whether an error reports that no memory is left, whichever library raised it."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or NO_MEMORY.search(str(error)) is not None


@cache
def device_name(device: Any) -> str:
    """The name of a GPU, or of the processor and how many cores this process may use.

    device: a torch.device.
    """
    if device.type == "cuda":
        import torch

        return str(torch.cuda.get_device_name(device))
    cores = num_cores()
    return f"{processor()}, {cores} {'core' if cores == 1 else 'cores'}"


@cache
def versions() -> dict[str, str]:
    """Versions of the project, Python and the installed packages that a figure depends on."""
    found = {"mars-live": _project_version(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine() or "unknown processor"


def cache_folder() -> Path:
    """Return the folder for files that can be made or fetched again: MARS_CACHE, else the
    platform's usual place, else a private folder among the temporary files. Raises OSError if that
    one belongs to another user.
    """
    chosen = os.environ.get("MARS_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen))  # which raises nothing without a home
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    if usual:
        return Path(usual) / "mars-live"
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and no entry in passwd, as in a container with any user id
        return _private_folder(Path(tempfile.gettempdir()) / f"mars-live-{os.getuid()}")
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "mars-live"


def _private_folder(path: Path) -> Path:
    """Make a folder that only this user can write to. Raises OSError if another user made it:
    compiled code is loaded from there."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "another user made it: set MARS_CACHE", str(path))
    return path


def free_memory() -> int | None:
    """Bytes that this process may still take, the limit of its container included; None where the
    system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        told = dict(line.split(":") for line in lines)
        free = 1024 * int(told["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):  # not on Linux
        return None
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, min(free, limit - used + int(stat["inactive_file"])))
    except (OSError, ValueError, KeyError):  # no container, or one without a limit
        return free


def return_freed_memory() -> None:
    """Hand the system what was freed here. glibc keeps it otherwise: after a checkpoint is read and
    packed, more bytes than a small model has. Does nothing with another C library."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def num_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _project_version() -> str:
    """As installed, or as pyproject.toml says, read as text: tomllib is not in Python 3.10."""
    try:
        return metadata.version("mars-live")
    except metadata.PackageNotFoundError:  # run from its folder
        pass
    try:
        text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = [line.split('"')[1] for line in text.splitlines() if line.startswith("version = ")]
    return found[0] if found else "unknown"
