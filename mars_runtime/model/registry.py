"""Which checkpoints are known and where their files are: beside the registry, or on the hub.

Nothing outside the list is ever fetched, so no visitor can make this machine download what they
name. Knows no weights and no torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.model.config import CheckpointError

REGISTRY = Path(__file__).parents[2] / "checkpoints" / "registry.json"
HUB_FILES = ("*.json", "*.safetensors")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the registry: where a checkpoint is (``path`` beside the registry, or ``hub`` id
    at ``revision``) and what to say about it. ``system``: system prompt it was trained with."""

    name: str
    block_size: int
    path: str | None = None
    hub: str | None = None
    revision: str | None = None
    licence: str = ""
    note: str = ""
    system: str | None = None


def registry(path: Path = REGISTRY) -> dict[str, Entry]:
    """The known checkpoints by name, in order. Raises CheckpointError."""
    try:
        lines: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        entries = [Entry(**line) for line in lines]
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is missing or damaged: restore it.") from error
    if not entries:
        raise CheckpointError(f"{path} names no checkpoint: restore it.")
    return {entry.name: entry for entry in entries}


def find(name_or_path: str, registry_path: Path = REGISTRY) -> tuple[Entry | None, Path]:
    """The registry's entry, None for a plain folder, and the folder with the files.

    A hub entry is known by its name and by its hub id. Raises CheckpointError.
    """
    known = registry(registry_path)
    by_hub = {entry.hub: entry for entry in known.values()}
    entry = known.get(name_or_path) or by_hub.get(name_or_path)
    if entry is None:
        folder = Path(name_or_path).expanduser()
        if not (folder / "config.json").is_file():
            raise CheckpointError(
                f"There is no checkpoint {name_or_path!r}: give a folder with a config.json or one "
                f"of {', '.join(known)}."
            )
        return None, folder
    if entry.path is None:
        return entry, _fetch(entry)
    folder = registry_path.parent / entry.path
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"The checkpoint {entry.name} is not in {folder}: restore it from the repository."
        )
    return entry, folder


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
