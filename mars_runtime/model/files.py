"""The files of a checkpoint or an adapter: weights (safetensors or GGUF) and JSON.

``NAME.safetensors.xz`` is decompressed when its folder is first used: next to the archive, or to
the cache folder if the archive's folder is read-only.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mars_runtime.files.inputs import check_regular, read_text
from mars_runtime.model.config import CheckpointError, printable
from mars_runtime.system.machine import cache_folder

ARCHIVE = ".xz"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = "adapter.json"  # a folder that contains this file is an adapter
ADAPTER_FILES = "adapter*.safetensors"
GGUF_MAGIC = b"GGUF"
MAX_EXPANSION = 8  # of an archive; for weights the ratio is below 2


def weight_files(folder: Path, pattern: str = "*.safetensors") -> list[Path]:
    """Return the safetensors files, sorted; decompress those that are missing or older than their
    archive. Thread-safe, also for processes. Raises CheckpointError.
    """
    files = {file.name: file for file in folder.glob(pattern)}
    for archive in folder.glob(pattern + ARCHIVE):
        file = archive.with_suffix("")
        if not file.exists() or file.stat().st_mtime_ns < archive.stat().st_mtime_ns:
            file = _decompressed(archive)
        files[file.name] = file
    return [files[name] for name in sorted(files)]


def weight_names(folder: Path) -> list[str]:
    """Choose the files as transformers does. Raises CheckpointError."""
    index = folder / INDEX
    if is_stored(folder, WEIGHTS):
        return [WEIGHTS]
    if not index.is_file():
        pickled = [name for name in PICKLED if (folder / name).exists()]
        found = f", only {pickled[0]}" if pickled else ""
        raise CheckpointError(
            f"There is no {WEIGHTS} or {index.name} in {folder}{found}: fetch a checkpoint in "
            "that format (pickled weights are never opened)."
        )
    names = read_json(index).get("weight_map")
    if not isinstance(names, Mapping) or not all(
        isinstance(name, str) and re.fullmatch(r"[\w.-]+\.safetensors", name)
        for name in names.values()
    ):
        raise CheckpointError(f"{index} is damaged: fetch the checkpoint again.")
    return sorted({*names.values()})


def chosen_weights(folder: Path) -> list[Path]:
    """Raises CheckpointError."""
    files: list[Path] = []
    for name in weight_names(folder):
        found = weight_files(folder, name)
        if not found:
            raise CheckpointError(
                f"{folder / INDEX} names {name}, which is missing: fetch that file."
            )
        files += found
    return files


def is_stored(folder: Path, pattern: str) -> bool:
    """Return whether the folder has such a file, plain or compressed."""
    return any(any(folder.glob(pattern + suffix)) for suffix in ("", ARCHIVE))


def gguf_at(path: Path) -> Path | None:
    """A GGUF file is recognised by its first bytes, or by its suffix so that a damaged file is
    reported. Raises CheckpointError for several in a folder.
    """
    if path.is_file():
        return path if path.suffix.lower() == ".gguf" or _has_magic(path) else None
    if not path.is_dir():
        return None
    files = sorted(file for file in path.iterdir() if _has_magic(file))
    if len(files) > 1:
        names = ", ".join(printable(file.name) for file in files)
        raise CheckpointError(f"{path} contains several GGUF files ({names}): choose one.")
    return files[0] if files else None


def _has_magic(path: Path) -> bool:
    try:
        check_regular(path)
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def has_adapter(folder: Path) -> bool:
    return (folder / ADAPTER).is_file()


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        message = f"{path} is missing or damaged: fetch the checkpoint again."
        raise CheckpointError(message) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must contain a JSON object: fetch the checkpoint again.")
    return value


def _decompressed(archive: Path) -> Path:
    """In the cache folder, the file's folder is named after the archive's hash."""
    file = archive.with_suffix("")
    try:
        if not os.access(archive.parent, os.W_OK):
            file = cache_folder() / "weights" / sha256_of(archive)[:16] / file.name
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                return file
        _decompress(archive, file)
    except (lzma.LZMAError, EOFError) as error:
        raise CheckpointError(f"{archive} is damaged: restore it from the repository.") from error
    except OSError as error:
        raise CheckpointError(
            f"{archive} cannot be decompressed to {file.parent} "
            f"({error.strerror or type(error).__name__}): make that folder writable and free some "
            "space, or set MARS_CACHE to another folder."
        ) from error
    return file


def _decompress(archive: Path, file: Path) -> None:
    bytes_left = MAX_EXPANSION * check_regular(archive)
    with (
        tempfile.TemporaryDirectory(dir=file.parent, prefix=".partial-") as folder,
        lzma.open(archive) as source,
    ):
        partial = Path(folder) / file.name
        with partial.open("wb") as target:
            while piece := source.read(1 << 20):
                bytes_left -= len(piece)
                if bytes_left < 0:
                    raise lzma.LZMAError("the decompressed file is too large")
                target.write(piece)
        shutil.copymode(archive, partial)
        partial.replace(file)


def sha256_of(path: Path) -> str:
    """Raises OSError."""
    check_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def fingerprint(weight_files: Iterable[Path]) -> str:
    """Hash the names and SHA-256 sums of weight files."""
    lines = "".join(f"{sha256_of(path)}  {path.name}\n" for path in weight_files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def has_content(path: Path, size: int, sha256: str) -> bool:
    return path.is_file() and path.stat().st_size == size and sha256_of(path) == sha256
