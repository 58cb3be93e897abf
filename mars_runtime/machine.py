"""Description of this machine and the installed versions, and folders for cached files."""

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

from mars_runtime.places import SOURCE

NO_MEMORY = re.compile(
    r"can(no|')t allocate memory|(not enough|out of) memory|bad_alloc|can't start new thread"
    r"|failed to map segment",
    re.IGNORECASE,
)
"""How the system, torch and other libraries report that no memory is left."""
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "gradio")


def is_memory_short(error: BaseException) -> bool:
    """Return whether an error reports that no memory is left, in the words of any library."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or NO_MEMORY.search(str(error)) is not None


@cache
def device_name(device: Any) -> str:
    """Return the name of a GPU, or of the processor and the number of cores this process may use.

    device: a torch.device.
    """
    if device.type == "cuda":
        import torch

        return str(torch.cuda.get_device_name(device))
    cores = num_cores()
    return f"{processor()}, {cores} {'core' if cores == 1 else 'cores'}"


@cache
def versions() -> dict[str, str]:
    """Return the versions of the project, Python and the packages that a figure depends on."""
    versions = {"mars-live": _project_version(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def processor() -> str:
    """Return the name of the processor."""
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
    """Return the folder for files that can be made or fetched again.

    It is MARS_CACHE, else the platform's usual place, else a private folder among the temporary
    files. Raises OSError if that one belongs to another user.
    """
    chosen = os.environ.get("MARS_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen))  # does not raise without a home
    usual = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    if usual:
        return Path(usual) / "mars-live"
    try:
        home = Path.home()
    except RuntimeError:  # no HOME and no entry in passwd, as in a container with any user id
        user = os.getuid() if hasattr(os, "getuid") else ""
        return _private_folder(Path(tempfile.gettempdir()) / f"mars-live-{user}")
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "mars-live"


def _private_folder(path: Path) -> Path:
    """Make a folder that only this user can write to, since compiled code is loaded from it.

    Raises OSError if another user made it.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_private(path.lstat()):
        raise PermissionError(errno.EPERM, "another user made it: set MARS_CACHE", str(path))
    return path


def is_private(status: os.stat_result) -> bool:
    """Return whether this is a folder that only this user can write to.

    Windows has no user ids, and its temporary folder is the user's own.
    """
    is_open = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
    return stat.S_ISDIR(status.st_mode) and not is_open


def free_memory() -> int | None:
    """Return the bytes that this process may still allocate, within its container's limit.

    Returns None if the system does not report them.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":") for line in lines)
        free = 1024 * int(fields["MemAvailable"].split()[0])
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
    """Return freed memory to the system.

    glibc keeps it otherwise: after a checkpoint is read and packed, that is more than the size of a
    small model. Does nothing with another C library.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def num_cores() -> int:
    """Return the number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _project_version() -> str:
    """Return the installed version, or that in pyproject.toml (as text: Python 3.10 has no
    tomllib)."""
    try:
        return metadata.version("mars-live")
    except metadata.PackageNotFoundError:  # not installed, run from its folder
        pass
    try:
        text = (SOURCE / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    matches = [line.split('"')[1] for line in text.splitlines() if line.startswith("version = ")]
    return matches[0] if matches else "unknown"
