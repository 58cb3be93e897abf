"""The list of known checkpoints and where their files come from; ``fetch.py`` finds and downloads
them.

Outside the list only the operator can name a repository of the hub: the page and the endpoint offer
a list, so no visitor can make this machine download anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from mars_runtime.machine import cache_folder
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import has_adapter
from mars_runtime.places import CHECKPOINTS
from mars_runtime.settings import MAX_BLOCK_SIZE

REGISTRY = CHECKPOINTS / "registry.json"
DEFAULT_BLOCK_SIZE = 8
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


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

    Adapters and repositories of the hub are. Raises CheckpointError.
    """
    entry = entry_of(name)
    if entry is None:
        return unlisted_entry(name).hub is not None or has_adapter(Path(name))
    return entry.path is None


def entry_of(name: str, path: Path = REGISTRY) -> Entry | None:
    """Return the entry with this name or hub id, None if there is none. Raises CheckpointError."""
    known = registry(path)
    return known.get(name) or next((entry for entry in known.values() if entry.hub == name), None)


def unlisted_entry(name: str) -> Entry:
    """Return an entry for a folder, a file or a hub id (``owner/name``) that no entry lists.

    A path that exists takes precedence over a hub id.
    """
    is_hub = HUB_ID.fullmatch(name) is not None and not Path(name).exists()
    return Entry(name, DEFAULT_BLOCK_SIZE, hub=name if is_hub else None)
