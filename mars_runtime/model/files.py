"""Find the safetensors files of a checkpoint or an adapter, stored as they are or as xz.

The bundled weights are stored compressed, which takes a third off the repository. Each
``NAME.safetensors.xz`` is decompressed next to itself once, when its folder is first used: from
then on the file is mapped into memory, checked and hashed like any other.
"""

from __future__ import annotations

import lzma
import shutil
import tempfile
from pathlib import Path

from mars_runtime.inputs import check_regular
from mars_runtime.model.config import CheckpointError

ARCHIVE = ".xz"
MAX_EXPANSION = 8
"""Times its own size that an archive may decompress to; weights reach less than two."""


def weight_files(folder: Path, pattern: str = "*.safetensors") -> list[Path]:
    """Return the safetensors files in ``folder``, sorted by name, decompressing them if needed.

    An archive that is newer than its file replaces it. Threads and processes may call this at the
    same time. Raises CheckpointError if an archive is damaged or the folder cannot be written.
    """
    for archive in sorted(folder.glob(pattern + ARCHIVE)):
        file = archive.with_suffix("")
        if not file.exists() or file.stat().st_mtime_ns < archive.stat().st_mtime_ns:
            _decompress(archive, file)
    return sorted(folder.glob(pattern))


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
        reason = error.strerror or type(error).__name__
        raise CheckpointError(
            f"{archive} cannot be decompressed to {file.name} ({reason}): make {file.parent} "
            f"writable and free some space, or run xz -dk on it as a user who can write there."
        ) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
