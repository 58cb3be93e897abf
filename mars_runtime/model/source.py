"""Find the files of a checkpoint from its name. No request is sent; ``fetch.py`` downloads."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import (
    ADAPTER,
    ADAPTER_FILES,
    ARCHIVE,
    gguf_at,
    has_adapter,
    is_stored,
    read_json,
    weight_names,
)
from mars_runtime.model.registry import REGISTRY, Entry, Gguf, entry_of, registry, unlisted_entry

PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.jinja", "*.safetensors", f"*.safetensors{ARCHIVE}"],
    "ignore_patterns": "*/*",  # a pattern without a slash also matches in subfolders
}
"""The files of a Hub repository that are downloaded."""


@dataclass(frozen=True, slots=True)
class Repository:
    """revision: a commit or branch; None for main."""

    id: str
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """The newest complete snapshot in the cache of the Hub's client."""
        from huggingface_hub import snapshot_download

        options = {"revision": self.revision or "main", **PATTERNS}
        try:
            folder = Path(snapshot_download(self.id, local_files_only=True, **options))
        except Exception:  # the Hub client raises errors of many libraries
            return None
        return folder if _is_complete(folder) else None


def _is_complete(folder: Path) -> bool:
    if has_adapter(folder):
        return is_stored(folder, ADAPTER_FILES)
    try:
        is_whole = all(is_stored(folder, name) for name in weight_names(folder))
    except CheckpointError:
        return False
    return is_whole and (folder / "config.json").is_file()


@dataclass(frozen=True, slots=True)
class Source:
    """given: what ``resolve`` was called with. path: the folder or GGUF file, which may not exist
    yet. entry: the registry's, for ``path``. adapter: its folder. base: that an unlisted adapter
    names; missing until the adapter is downloaded. origins: where files can be downloaded; missing:
    those that have to be.
    """

    name: str
    given: str
    registry_path: Path
    path: Path
    entry: Entry | None = None
    adapter: Path | None = None
    base: str = ""
    origins: tuple[Gguf | Repository, ...] = ()
    missing: tuple[Gguf | Repository, ...] = ()

    @property
    def is_chat(self) -> bool:
        """False for listed checkpoints of this repository and unlisted folders."""
        if self.base or self.entry is None:
            return bool(self.base or self.origins)
        return self.entry.path is None


def resolve(name_or_path: str, registry_path: Path = REGISTRY) -> Source:
    """Find a name in the registry, a Hub id (``owner/name``), a folder or a GGUF file. An adapter
    brings the base that it names. Raises CheckpointError.
    """
    source = _find(name_or_path, registry_path)
    if source.adapter is None or source.adapter != source.path:
        return source
    name = read_json(source.adapter / ADAPTER).get("base")
    if not isinstance(name, str) or not name:
        raise CheckpointError(
            f'{source.adapter / ADAPTER} does not name its base: add the key "base" with a name in '
            "the registry, a Hub id or a path."
        )
    if source.origins and entry_of(name, registry_path) is None and not unlisted_entry(name).hub:
        raise CheckpointError(
            f"The base {name!r} of the adapter in {source.adapter} is neither a name in the "
            "registry nor a Hub id: choose another adapter, or ask its author to correct its base."
        )
    base = _find(name, registry_path)
    if base.adapter is not None and base.adapter == base.path:
        raise CheckpointError(
            f"The base {base.name} of the adapter in {source.adapter} is an adapter itself: write "
            f"the name of the base model into {ADAPTER}."
        )
    origins = (*source.origins, *base.origins)
    own = replace(base, name=source.name, given=name_or_path, base=base.name)
    return replace(own, adapter=source.adapter, origins=origins)


def _find(name: str, registry_path: Path) -> Source:
    """An unlisted adapter is both its ``path`` and its ``adapter``."""
    entry = entry_of(name, registry_path)
    if entry is not None:
        return _find_listed(entry, registry_path)
    path = Path(os.path.expanduser(name))
    if has_adapter(path):
        return Source(path.name, name, registry_path, path, adapter=path)
    if (path / "config.json").is_file():
        return Source(path.name, name, registry_path, path)
    if (gguf := gguf_at(path)) is not None:
        return Source(gguf.stem, name, registry_path, gguf)
    if (hub := unlisted_entry(name).hub) is not None:
        return _find_on_hub(name, registry_path, Repository(hub))
    raise CheckpointError(
        f"There is no checkpoint {name!r}: use a folder with a config.json or an {ADAPTER}, a "
        f"GGUF file, a Hub id (owner/name) or one of {', '.join(registry(registry_path))}."
    )


def _find_listed(entry: Entry, registry_path: Path) -> Source:
    if entry.gguf is None and entry.path is None:
        repository = Repository(entry.hub or entry.name, entry.revision)
        return replace(_find_on_hub(entry.name, registry_path, repository), entry=entry)
    adapter = registry_path.parent / entry.adapter if entry.adapter else None
    adapter = adapter if adapter is not None and has_adapter(adapter) else None
    source = Source(entry.name, entry.name, registry_path, Path(), entry, adapter)
    if entry.gguf is not None:
        # The checksum is not verified here, because loading rejects a damaged file.
        missing = () if entry.gguf.is_there else (entry.gguf,)
        return replace(source, path=entry.gguf.path, origins=(entry.gguf,), missing=missing)
    path = registry_path.parent / str(entry.path)
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"The folder {path} of the checkpoint {entry.name} has no config.json: restore it "
            "from the repository."
        )
    return replace(source, path=path)


def _find_on_hub(name: str, registry_path: Path, repository: Repository) -> Source:
    folder, origins = repository.folder, (repository,)
    if folder is None:
        path = Path(repository.id)
        return Source(name, name, registry_path, path, origins=origins, missing=origins)
    adapter = folder if has_adapter(folder) else None
    return Source(name, name, registry_path, folder, adapter=adapter, origins=origins)
