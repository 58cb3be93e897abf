"""Output files of commands: checked in advance, written by one process, and replaced atomically."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mars_runtime.errors import MarsError

try:
    import fcntl
except ImportError:  # Windows opens no folder, so concurrent writers are not prevented there.
    fcntl = None  # type: ignore[assignment]


class OutputError(MarsError, ValueError):
    """The output cannot be written."""


def path_of(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("name a file or a folder")
    return Path(text)


def in_words(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    if error.filename is None:
        return f"The output can't be written ({reason}). Free some space, or redirect it elsewhere."
    return (
        f"{error.filename} can't be used ({reason}). Check that it exists and that you may use it."
    )


def check_file(path: Path) -> None:
    """Create the folder of an output file and check that it can be written. Raises OutputError."""
    target = _target(path)
    if target.is_dir():
        raise OutputError(f"{path} is a folder. Name a file to write.")
    if target.exists() and not target.is_file():
        raise OutputError(f"{path} is not a regular file. Name a file to write.")
    check_folder(target.parent)


def check_folder(path: Path) -> None:
    """Create a folder if necessary. Raises OutputError if no file can be written in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{path} cannot be written ({reason}). Choose another path.") from error


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically, at the target of a symbolic link. Raises OutputError."""
    check_file(path)
    target = _target(path)
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{path} cannot be written ({reason}). Free some space.") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise OutputError(f"{path} is a broken link. Choose another path.") from error


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Lock an existing file or folder while the block runs. Raises OutputError if another process
    has the lock.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(
            f"Another run is writing to {path}. Wait until it ends, or choose another path."
        ) from error
