"""Whether the files of a checkpoint are, to the last bit, those that were meant.

A folder may hold ``SHA256SUMS``, as ``sha256sum *.json *.jinja *.safetensors > SHA256SUMS`` writes
it there; one that does is read only if it agrees. Knows no weights.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mars_runtime.model.config import CheckpointError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([\w.-]+)")


def sha256_of(path: Path) -> str:
    """Of the content of a file, in hexadecimal digits. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def check_sums(folder: Path) -> None:
    """Raises CheckpointError where a file is not what ``SHA256SUMS`` says, or weights are there of
    which it says nothing. A folder without one is not checked."""
    if not (folder / SUMS).exists():
        return
    sums = read_sums(folder)
    weights = {file.name for file in folder.glob("*.safetensors")}
    for name in sorted(weights - sums.keys()):
        raise _damaged(folder / name, "is not listed")
    for name, said in sums.items():
        try:
            is_intact = sha256_of(folder / name) == said
        except OSError as error:
            raise _damaged(folder / name, "cannot be read") from error
        if not is_intact:
            raise _damaged(folder / name, "is damaged or was changed")


def read_sums(folder: Path) -> dict[str, str]:
    """What ``SHA256SUMS`` says of the files beside it: name -> digits. Raises CheckpointError."""
    path = folder / SUMS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _damaged(path, "cannot be read") from error
    found = [_LINE.fullmatch(line) for line in lines]
    if not found or None in found:
        raise _damaged(path, "is damaged")
    return {match[2]: match[1] for match in found if match}


def _damaged(path: Path, fault: str) -> CheckpointError:
    return CheckpointError(
        f"{path} {fault}, by the {SUMS} beside it: restore the checkpoint, or write {SUMS} anew if "
        "this is what it should be."
    )
