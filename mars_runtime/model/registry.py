"""Which checkpoints are known and where their files are: beside the registry, in the cache folder
for those whose base is fetched (``fetch.py``), or on the hub.

Nothing outside the list is ever fetched, so no visitor can make this machine download what they
name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from mars_runtime.machine import cache_folder
from mars_runtime.model.config import CheckpointError
from mars_runtime.settings import MAX_BLOCK_SIZE

REGISTRY = Path(__file__).parents[2] / "checkpoints" / "registry.json"
GGUF = ".gguf"
HUB_FILES = ("*.json", "*.jinja", "*.safetensors")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that contains the file: its package, version, size in bytes and SHA-256."""

    package: str
    version: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Gguf:
    """A GGUF file: its size in bytes, its SHA-256, its Hub repository and revision, and its
    wheel."""

    file: str
    size: int
    sha256: str
    hub: str
    wheel: Wheel | None = None
    revision: str | None = None

    @property
    def path(self) -> Path:
        """Path of the file in the cache folder, present or not."""
        return cache_folder() / self.file


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the registry.

    The checkpoint is in the folder ``path`` next to the registry, in the file ``gguf``, or on the
    ``hub`` at ``revision``.
    adapter: folder next to the registry with an adapter for masks; it may not exist yet.
    mask_token: the token of the base that serves as mask, if it has no mask token of its own.
    system: default system prompt; None uses the one in the checkpoint's chat template.
    draft: name of the default draft model, one that shares the vocabulary and pays.
    dtype: arithmetic on a CPU, if published figures depend on it.
    is_small_enough: whether a checkpoint of the Hub runs well on the processor of any machine.
    note: its origin. size, can, cannot: descriptions of what it is suited for and what not.
    """

    name: str
    block_size: Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)]
    path: str | None = None
    gguf: Gguf | None = None
    hub: str | None = None
    revision: str | None = None
    adapter: str | None = None
    mask_token: str | None = None
    licence: str = ""
    note: str = ""
    size: str = ""
    can: str = ""
    cannot: str = ""
    system: str | None = None
    draft: str | None = None
    dtype: str | None = None
    is_small_enough: bool = False

    def is_here(self, folder: Path) -> bool:
        """Whether its files are here without asking a hub; ``folder``: the registry's."""
        if self.gguf is not None:
            return self.gguf.path.is_file()
        if self.hub is not None:
            return local_snapshot(self) is not None
        return self.path is not None and (folder / self.path / "config.json").is_file()

    @property
    def in_words(self) -> str:
        """Description for a visitor who chooses a checkpoint; may be empty."""
        parts = [self.size, f"It {self.can}" if self.can else ""]
        parts += [f"It {self.cannot}" if self.cannot else "", self.note.rstrip(".")]
        return " ".join(f"{part}." for part in parts if part)


_ENTRIES = TypeAdapter(list[Entry], config=ConfigDict(strict=True, extra="forbid"))


def registry(path: Path = REGISTRY) -> dict[str, Entry]:
    """Return the known checkpoints by name, in order. Raises CheckpointError."""
    try:
        entries = _ENTRIES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise CheckpointError(f"{path} is missing or damaged: restore it.") from error
    if not entries:
        raise CheckpointError(f"{path} names no checkpoint: restore it.")
    return {entry.name: entry for entry in entries}


def default_draft(name: str, path: Path = REGISTRY) -> str:
    """Return the name of a checkpoint's default draft model, or "". Raises CheckpointError."""
    entry = registry(path).get(name)
    return (entry.draft if entry else None) or ""


def is_chat(name: str) -> bool:
    """Return whether a checkpoint is a general chat model, not one trained for the project's tasks.

    Raises CheckpointError.
    """
    entry = registry().get(name)
    return entry is not None and entry.path is None


def find(name_or_path: str, registry_path: Path = REGISTRY) -> tuple[Entry | None, Path]:
    """The registry's entry, None for what is not in it, and the folder or GGUF file.

    A hub entry is known by its name and by its hub id. Raises CheckpointError.
    """
    known = registry(registry_path)
    by_hub = {entry.hub: entry for entry in known.values()}
    entry = known.get(name_or_path) or by_hub.get(name_or_path)
    if entry is None:
        path = Path(os.path.expanduser(name_or_path))
        if not (path / "config.json").is_file() and not (path.suffix == GGUF and path.is_file()):
            raise CheckpointError(
                f"There is no checkpoint {name_or_path!r}: give a folder with a config.json, a "
                f"GGUF file or one of {', '.join(known)}."
            )
        return None, path
    if entry.gguf is not None:
        if not entry.gguf.path.is_file():
            raise CheckpointError(
                f"The checkpoint {entry.name} is not on this machine yet: run python -m "
                f"mars_runtime fetch {entry.name}."
            )
        return entry, entry.gguf.path
    if entry.path is None:
        return entry, _fetch(entry)
    folder = registry_path.parent / entry.path
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"The checkpoint {entry.name} is not in {folder}: restore it from the repository."
        )
    return entry, folder


def local_snapshot(entry: Entry) -> Path | None:
    """Where a hub entry lies in the cache of the hub's client, None where it does not."""
    from huggingface_hub import snapshot_download

    if entry.hub is None:
        return None
    try:
        found = Path(
            snapshot_download(entry.hub, revision=entry.revision or "main", local_files_only=True)
        )
    except Exception:  # the hub client raises errors of many libraries
        return None
    is_whole = (found / "config.json").is_file() and any(found.glob("*.safetensors"))
    return found if is_whole else None


def _fetch(entry: Entry) -> Path:
    """The snapshot of a hub entry, from the local cache when the hub cannot be reached."""
    from huggingface_hub import snapshot_download

    try:
        path = snapshot_download(
            entry.hub or entry.name,
            revision=entry.revision or "main",
            allow_patterns=list(HUB_FILES),
        )
    except Exception as error:  # the hub client raises errors of many libraries
        raise CheckpointError(
            f"The checkpoint {entry.name} could not be fetched from the hub and is not in the "
            "local cache: check the connection, or choose a bundled checkpoint."
        ) from error
    return Path(path)
