"""The checkpoints that load by name. Visitors choose from these; the operator may add others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.files.paths import CHECKPOINTS
from mars_runtime.model.config import CheckpointError
from mars_runtime.system.machine import cache_folder

REGISTRY = CHECKPOINTS / "registry.json"
DEFAULT_BLOCK_SIZE = 8
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wheel:
    package: str
    version: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Gguf:
    """size: in bytes. hub: its repository."""

    file: str
    size: int
    sha256: str
    hub: str
    wheel: Wheel | None = None
    revision: str | None = None

    @property
    def path(self) -> Path:
        return cache_folder() / self.file

    @property
    def is_there(self) -> bool:
        """Whether the file has its size; loading verifies its content."""
        return self.path.is_file() and self.path.stat().st_size == self.size


@dataclass(frozen=True, slots=True)
class Entry:
    """path, adapter: folders, relative to the registry's; the adapter may not exist yet. gguf: used
    if there is no ``path``. hub: used if there is neither. mask_token: an existing token. draft:
    the default draft model. dtype: on a CPU, if published figures depend on it. is_small_enough:
    for the CPU of any machine.
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
        parts = [self.size, f"It {self.can}" if self.can else ""]
        parts += [f"It {self.cannot}" if self.cannot else "", self.note.rstrip(".")]
        return " ".join(f"{part}." for part in parts if part)


_ENTRIES = TypeAdapter(list[Entry], config=ConfigDict(strict=True, extra="forbid"))


def registry(path: Path = REGISTRY) -> dict[str, Entry]:
    """Raises CheckpointError."""
    try:
        entries = _ENTRIES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise CheckpointError(f"The registry {path} is missing or damaged: restore it.") from error
    if not entries:
        raise CheckpointError(f"The registry {path} lists no checkpoint: restore it.")
    return {entry.name: entry for entry in entries}


def default_draft(name: str, path: Path = REGISTRY) -> str:
    entry = registry(path).get(name)
    return (entry.draft if entry else None) or ""


def entry_of(name: str, path: Path = REGISTRY) -> Entry | None:
    known = registry(path)
    return known.get(name) or next((entry for entry in known.values() if entry.hub == name), None)


def unlisted_entry(name: str) -> Entry:
    """A path that exists is not taken as a Hub id."""
    is_hub = HUB_ID.fullmatch(name) is not None and not Path(name).exists()
    return Entry(name, DEFAULT_BLOCK_SIZE, hub=name if is_hub else None)
