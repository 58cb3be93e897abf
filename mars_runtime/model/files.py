"""Find the files of a checkpoint or an adapter: safetensors, stored as they are or as xz, or GGUF.

The bundled weights are stored compressed, which takes a third off the repository. Each
``NAME.safetensors.xz`` is decompressed once, when its folder is first used: next to itself, or in
the cache folder if its own is read-only, as in a system's ``site-packages``. From then on the file
is mapped into memory, checked and hashed like any other.
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
from mars_runtime.model.config import CheckpointError

ARCHIVE = ".xz"
_SHARD = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")
ADAPTER = "adapter.json"
"""The file by which a folder is an adapter."""
ADAPTER_FILES = "adapter*.safetensors"
MAX_EXPANSION = 8
"""Times its own size that an archive may decompress to; weights reach less than two."""


def weight_files(folder: Path, pattern: str = "*.safetensors") -> list[Path]:
    """Return the safetensors files of ``folder``, sorted by name, decompressing them if needed.

    An archive that is newer than its file replaces it. Threads and processes may call this at the
    same time. Raises CheckpointError if an archive is damaged or nothing can be written.
    """
    files = {file.name: file for file in folder.glob(pattern)}
    for archive in folder.glob(pattern + ARCHIVE):
        file = archive.with_suffix("")
        if not file.exists() or file.stat().st_mtime_ns < archive.stat().st_mtime_ns:
            file = _decompressed(archive)
        files[file.name] = file
    return [files[name] for name in sorted(files)]


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the paths of all parts of a split checkpoint, given one; else only the path itself.

    Source: ggml-org/llama.cpp, src/llama.cpp, ``llama_split_path``.
    """
    match = _SHARD.fullmatch(path.name)
    if match is None:
        return (path,)
    stem, _, count = match.groups()
    names = [f"{stem}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]
    return tuple(map(path.with_name, names)) or (path,)


def stem_of(path: Path) -> str:
    """Return a checkpoint's name: the file name without its suffix and the number of the part."""
    match = _SHARD.fullmatch(path.name)
    return match[1] if match else path.stem


def has_adapter(folder: Path) -> bool:
    """Return whether the folder holds an adapter."""
    return (folder / ADAPTER).is_file()


def _decompressed(archive: Path) -> Path:
    """Return the decompressed file: next to the archive, else in the cache folder by content."""
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
    """Write ``file`` through a partial file of its own, so no reader sees it incomplete."""
    partial: Path | None = None
    try:
        room = MAX_EXPANSION * check_regular(archive)
        with (
            lzma.open(archive) as source,
            tempfile.NamedTemporaryFile(
                dir=file.parent, prefix=f"{file.name}.", suffix=".partial", delete=False
            ) as target,
        ):
            partial = Path(target.name)
            while piece := source.read(1 << 20):
                room -= len(piece)
                if room < 0:
                    raise lzma.LZMAError("it holds more than weights would")
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
        else "name a folder with free space in the environment variable MARS_CACHE"
    )
    return CheckpointError(
        f"{archive} cannot be decompressed to {file.parent} ({reason}): {advice}."
    )
