"""Describe this machine: its devices, free memory, installed versions and cache folder."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import platform
import re
import stat
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

from mars_runtime.files.paths import SOURCE

NO_MEMORY = re.compile(
    r"can(no|')t allocate memory|(not enough|out of) memory|bad_alloc|can't start new thread"
    r"|failed to map segment",
    re.IGNORECASE,
)
CGROUP, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "gradio")


def is_memory_short(error: BaseException) -> bool:
    """Whether an error of Python, torch or another library reports too little memory."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or NO_MEMORY.search(str(error)) is not None


@cache
def device_name(device: Any) -> str:
    """Return the name of a GPU, or the processor's and the number of usable cores, with the
    affinity or CPU quota that limits them.
    """
    if device.type == "cuda":
        import torch

        return str(torch.cuda.get_device_name(device))
    cores, limit = _cores()
    total = f" of {os.cpu_count()}" if limit else ""
    return f"{processor()}, {cores}{total} {'core' if cores == 1 else 'cores'}{limit}"


@cache
def versions() -> dict[str, str]:
    versions = {"mars-live": _project_version(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def processor() -> str:
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
    """Return the folder for files that can be created or downloaded again: MARS_CACHE, the
    platform's cache folder or, without a home, one for temporary files. Raises OSError if another
    user can write to it.
    """
    chosen = os.environ.get("MARS_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen))  # unlike Path.expanduser, works without a home
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
    """Raises PermissionError: compiled code is loaded from this folder."""
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_private(path.lstat()):
        reason = "another user owns this folder or can write to it; set MARS_CACHE"
        raise PermissionError(errno.EPERM, reason, str(path))
    return path


def is_private(status: os.stat_result) -> bool:
    """Return whether only this user can write to a folder; always true on Windows."""
    is_open = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
    return stat.S_ISDIR(status.st_mode) and not is_open


def free_memory() -> int | None:
    """Return the bytes that this process can still allocate, in a container as well, or None."""
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
    """glibc would otherwise hold more freed memory than a small model needs."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def num_cores() -> int:
    return _cores()[0]


def _cores() -> tuple[int, str]:
    """Return the number of usable cores and the limit that determines it, such as " (affinity)". A
    CPU quota is rounded down.
    """
    total = cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota()
    if quota < cores:
        return max(1, int(quota)), " (CPU quota)"
    return cores, " (affinity)" if cores < total else ""


def _cpu_quota() -> float:
    """Return the lowest CPU quota of the control groups of this process and above, in cores."""
    try:
        lines = CGROUP.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        return math.inf
    quota = math.inf
    for line in lines:
        controllers, _, name = line.partition(":")[2].partition(":")
        group = PurePosixPath(name.lstrip("/"))
        if not controllers:
            folders = [CGROUPS]
        elif "cpu" in controllers.split(","):
            folders = [CGROUPS / controllers, CGROUPS / "cpu"]
        else:
            continue
        for folder, part in product(folders, (group, *group.parents)):
            quota = min(quota, _group_quota(folder / part))
    return quota


def _group_quota(group: Path) -> float:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            text = " ".join((group / name).read_text(encoding="ascii") for name in names)
            quota, period = map(int, text.split())
        except (OSError, ValueError):  # missing, or "max"
            continue
        if quota > 0 and period > 0:  # a v1 group without a limit has -1
            return quota / period
    return math.inf


def _project_version() -> str:
    try:
        return metadata.version("mars-live")
    except metadata.PackageNotFoundError:  # not installed, run from its folder
        pass
    try:  # searches the lines, because Python 3.10 has no tomllib
        text = (SOURCE / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    matches = [line.split('"')[1] for line in text.splitlines() if line.startswith("version = ")]
    return matches[0] if matches else "unknown"
