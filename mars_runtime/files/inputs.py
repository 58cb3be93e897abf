"""Read untrusted files: only regular files of limited size, because reading a named pipe would
block and a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 1 << 26
"""Twice the size of the largest tokenizer files."""


def check_regular(path: Path) -> int:
    """Return the size of a regular file in bytes. Raises OSError for anything else."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return status.st_size


def read_bytes(path: Path, max_bytes: int = MAX_BYTES, folder: Path | None = None) -> bytes:
    """Raises OSError unless this is a regular file of at most ``max_bytes`` bytes; with ``folder``,
    one inside it without another hard link. The checks use the open file, so replacing the path has
    no effect.
    """
    with open(path, "rb", opener=_open) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > max_bytes:
            raise OSError(
                errno.EFBIG, f"it is larger than {max_bytes >> 20} MB, the maximum", str(path)
            )
        if folder is not None and not _is_inside(folder, path, status):
            raise FileNotFoundError(errno.ENOENT, "it is not a file inside its folder", path.name)
        return file.read(status.st_size)


def _open(path: str, flags: int) -> int:
    """Open a file without waiting, even if it is a named pipe without a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_inside(folder: Path, path: Path, status: os.stat_result) -> bool:
    try:
        resolved = path.resolve()
        is_same = os.path.samestat(resolved.lstat(), status)
    except (OSError, RuntimeError):  # The file was deleted, or there is a cycle of links.
        return False
    return is_same and status.st_nlink == 1 and resolved.is_relative_to(folder.resolve())


def read_text(path: Path, max_bytes: int = MAX_BYTES, folder: Path | None = None) -> str:
    return read_bytes(path, max_bytes, folder).decode("utf-8")
