"""Results are of the checkpoints that ship."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.files.paths import ASSETS
from mars_runtime.model.files import sha256_of, weight_files
from mars_runtime.model.registry import REGISTRY, registry

RESULTS = sorted((ASSETS / "results").glob("*.json"))


def fingerprints(text: str) -> set[tuple[str, str]]:
    """Return the name and fingerprint of every checkpoint in a result."""
    parts: list[dict[str, Any]] = []
    json.loads(text, object_pairs_hook=lambda pairs: parts.append(dict(pairs)))
    own = (part for part in parts if "fingerprint" in part)
    return {(part.get("checkpoint") or part["name"], part["fingerprint"]) for part in own}


def shipped(name: str, has_adapter: bool = True) -> str:
    """Return the fingerprint of a bundled or pinned checkpoint, as loading computes it."""
    entry = registry().get(name)
    folder = REGISTRY.parent / ((entry.path or entry.adapter if entry else None) or name)
    sums = [(entry.gguf.sha256, entry.gguf.file)] if entry and entry.gguf else []
    if has_adapter or not sums:
        sums += [(sha256_of(path), path.name) for path in weight_files(folder)]
    lines = "".join(f"{digits}  {file}\n" for digits, file in sums)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.stem))
def test_results_are_of_the_checkpoints_that_ship(path: Path) -> None:
    named = fingerprints(path.read_text(encoding="utf-8"))
    assert named
    for name, given in sorted(named):
        assert given in {shipped(name), shipped(name, has_adapter=False)}, name
