"""Files that strangers may have written: regular files of bounded size, nothing else.

A named pipe would block the reader, a device may never end, and a huge file takes all memory.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path

MAX_BYTES = 1 << 26
"""Of a configuration, a tokenizer or a list; the largest tokenizers have half of that."""


def check_regular(path: Path) -> int:
    """The size of a regular file in bytes. Raises OSError for anything else."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return found.st_size


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises OSError."""
    size = check_regular(path)
    if size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MB", str(path))
    with path.open("rb") as file:
        return file.read(size)


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The same as text in UTF-8. Raises OSError, or UnicodeDecodeError."""
    return read_bytes(path, most).decode("utf-8")
