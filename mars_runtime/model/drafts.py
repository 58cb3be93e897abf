"""Draft checkpoints for a target: found by name, held to its vocabulary, loaded once.

Speculative decoding verifies ids, so a draft model must mean the same text by them. Only names of
the registry are taken whose files are on this machine: no visitor can make it download or read what
they name. Knows no decoding.
"""

from __future__ import annotations

import threading
from pathlib import Path

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.registry import REGISTRY, registry, usual_draft
from mars_runtime.text import Tokenizer


class Drafts:
    """Draft checkpoints of one target; ``load`` may be called from any thread."""

    def __init__(self, target: Checkpoint, registry_path: Path = REGISTRY) -> None:
        self._target = target
        self._registry_path = registry_path
        self._lock = threading.Lock()
        self._loaded: dict[str, Checkpoint] = {}

    def load(self, name: str = "") -> Checkpoint:
        """The draft of that name, or the target's usual one. Raises CheckpointError, one
        sentence."""
        known = registry(self._registry_path)
        name = name or usual_draft(self._target.name, self._registry_path)
        if not name:
            raise CheckpointError(
                f"No smaller checkpoint here shares the vocabulary of {self._target.name}, so none "
                "can draft for it: choose another method."
            )
        with self._lock:
            if name not in self._loaded:
                entry = known.get(name)
                if entry is None or not entry.is_here(self._registry_path.parent):
                    raise CheckpointError(
                        f"The draft {name!r} is no checkpoint of the registry that is on this "
                        "machine: choose one that is."
                    )
                self._loaded[name] = self._fitting(name)
            return self._loaded[name]

    def _fitting(self, name: str) -> Checkpoint:
        """Loaded as the target is, on its device. Raises CheckpointError."""
        target = self._target
        if name == target.name:
            return target
        device = str(target.model.device)
        draft = load_checkpoint(name, device=device, registry_path=self._registry_path)
        if not share_vocabulary(draft.tokenizer, target.tokenizer):
            raise CheckpointError(
                f"{name} and {target.name} do not share a vocabulary: choose a draft of the same "
                "family."
            )
        return draft


def share_vocabulary(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether both mean the same text by every id, and end a turn alike."""
    if one.size != other.size or one.eos_ids != other.eos_ids:
        return False
    mine, theirs = one.parts(), other.parts()
    return all(mine[key] == theirs[key] for key in ("encoder", "added"))
