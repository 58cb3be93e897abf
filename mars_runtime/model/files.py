"""Find the weight files of a checkpoint or an adapter: safetensors, plain or compressed, or GGUF.

The bundled weights are compressed, which makes the repository a third smaller. Each
``NAME.safetensors.xz`` is decompressed when its folder is first used. The result is stored next to
the archive, or in the cache folder if the archive's folder is read-only, as in a system's
``site-packages``.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import tempfile
from pathlib import Path

from mars_runtime.inputs import check_regular
from mars_runtime.machine import cache_folder
from mars_runtime.model.config import CheckpointError, printable

ARCHIVE = ".xz"
_SHARD = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.IGNORECASE)
GGUF_MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""
ADAPTER = "adapter.json"
"""A folder that contains this file is an adapter."""
ADAPTER_FILES = "adapter*.safetensors"
MAX_EXPANSION = 8
"""Maximum ratio of an archive's decompressed to its compressed size; for weights it is below 2."""


def weight_files(folder: Path, pattern: str = "*.safetensors") -> list[Path]:
    """Return the safetensors files of ``folder``, sorted by name; decompress them if needed.

    A file that is older than its archive is decompressed again. Several threads and processes may
    call this function at the same time. Raises CheckpointError if an archive is damaged or the
    decompressed file cannot be written.
    """
    files = {file.name: file for file in folder.glob(pattern)}
    for archive in folder.glob(pattern + ARCHIVE):
        file = archive.with_suffix("")
        if not file.exists() or file.stat().st_mtime_ns < archive.stat().st_mtime_ns:
            file = _decompressed(archive)
        files[file.name] = file
    return [files[name] for name in sorted(files)]


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the paths of all files of the split checkpoint that ``path`` belongs to.

    If the name of ``path`` does not have the form of a split file, only ``path`` is returned.

    Source: ggml-org/llama.cpp, src/llama.cpp, ``llama_split_path``.
    """
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return (path,)
    stem, _, count = match.groups()
    names = [f"{stem}-{number:05}-of-{count}{path.suffix}" for number in range(1, int(count) + 1)]
    return tuple(map(path.with_name, names)) or (path,)


def gguf_at(path: Path) -> Path | None:
    """Return the GGUF checkpoint at ``path``, a file or a folder with only one, or None.

    A file is recognised by its first bytes, or by its suffix so that a damaged file is reported as
    such. In a folder, the parts of a split checkpoint count as one. Raises CheckpointError if a
    folder contains several checkpoints.
    """
    if path.is_file():
        return path if path.suffix.lower() == ".gguf" or _has_magic(path) else None
    if not path.is_dir():
        return None
    firsts = sorted({files_of(file)[0] for file in path.iterdir() if _has_magic(file)})
    if len(firsts) > 1:
        names = ", ".join(printable(file.name) for file in firsts)
        raise CheckpointError(f"{path} contains several GGUF checkpoints ({names}): choose one.")
    return firsts[0] if firsts else None


def _has_magic(path: Path) -> bool:
    try:
        check_regular(path)
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def stem_of(path: Path) -> str:
    """Return the name of a file without its suffix and without the number of a split file."""
    match = _SHARD.fullmatch(path.name)
    return match[1] if match else path.stem


def has_adapter(folder: Path) -> bool:
    return (folder / ADAPTER).is_file()


def _decompressed(archive: Path) -> Path:
    """Decompress an archive and return the file.

    The file is stored next to the archive if that folder is writable, otherwise in the cache
    folder, in a subfolder named after the archive's hash.
    """
    file = archive.with_suffix("")
    if os.access(archive.parent, os.W_OK):
        _decompress(archive, file)
        return file
    try:
        check_regular(archive)
        content = hashlib.sha256(archive.read_bytes()).hexdigest()
        file = cache_folder() / "weights" / content[:16] / file.name
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(archive, file, error) from error
    if not file.exists():
        _decompress(archive, file)
    return file


def _decompress(archive: Path, file: Path) -> None:
    """Decompress to a temporary file, then rename it, so that no reader sees an incomplete file."""
    partial: Path | None = None
    try:
        bytes_left = MAX_EXPANSION * check_regular(archive)
        with (
            lzma.open(archive) as source,
            tempfile.NamedTemporaryFile(
                dir=file.parent, prefix=f"{file.name}.", suffix=".partial", delete=False
            ) as target,
        ):
            partial = Path(target.name)
            while piece := source.read(1 << 20):
                bytes_left -= len(piece)
                if bytes_left < 0:
                    raise lzma.LZMAError("the decompressed file is too large")
                target.write(piece)
        shutil.copymode(archive, partial)
        partial.replace(file)
    except (lzma.LZMAError, EOFError) as error:
        raise CheckpointError(f"{archive} is damaged: restore it from the repository.") from error
    except OSError as error:
        raise _unwritable(archive, file, error) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _unwritable(archive: Path, file: Path, error: OSError) -> CheckpointError:
    reason = error.strerror or type(error).__name__
    advice = (
        f"make {file.parent} writable and free some space, or run xz -dk on it as a user who can "
        "write there"
        if file.parent == archive.parent
        else "set the environment variable MARS_CACHE to a folder with free space"
    )
    return CheckpointError(
        f"{archive} cannot be decompressed to {file.parent} ({reason}): {advice}."
    )
