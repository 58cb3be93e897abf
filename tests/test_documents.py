"""Results are of the checkpoints that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.files.paths import ASSETS
from mars_runtime.model.files import SUMS, fingerprint, fingerprint_of_sums, read_sums
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY, registry
from mars_runtime.model.source import resolve

RESULTS = sorted((ASSETS / "results").glob("*.json"))
BUNDLED = {path.parent.name for path in REGISTRY.parent.glob(f"*/{SUMS}")} - {"mars-smollm2"}


def fingerprints(text: str) -> set[tuple[str, str]]:
    """Return the name and fingerprint of every checkpoint in a result."""
    parts: list[dict[str, Any]] = []
    json.loads(text, object_pairs_hook=lambda pairs: parts.append(dict(pairs)))
    own = (part for part in parts if "fingerprint" in part)
    return {(part.get("checkpoint") or part["name"], part["fingerprint"]) for part in own}


def shipped(name: str) -> str:
    """Return the fingerprint of a bundled or pinned checkpoint, from its recorded sums."""
    entry = registry().get(name)
    folder = REGISTRY.parent / ((entry.path or entry.adapter if entry else None) or name)
    sums = sorted(item for item in read_sums(folder).items() if item[0].endswith(".safetensors"))
    return fingerprint_of_sums([*base_of(name), *sums])


def base_of(name: str) -> list[tuple[str, str]]:
    entry = registry().get(name)
    return [(entry.gguf.file, entry.gguf.sha256)] if entry and entry.gguf else []


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.stem))
def test_results_are_of_the_checkpoints_that_ship(path: Path) -> None:
    named = fingerprints(path.read_text(encoding="utf-8"))
    assert named
    bases = {fingerprint_of_sums(base) for name, _ in named if (base := base_of(name))}
    assert [name for name, given in sorted(named) if given not in {shipped(name), *bases}] == []


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_what_ships_has_the_fingerprint_that_a_measurement_would_note(name: str) -> None:
    """The chat model's is tested where it is loaded (test_law_bitwise.py)."""
    source = resolve(name if name in registry() else str(REGISTRY.parent / name))
    if source.missing:
        pytest.skip("not here")
    assert fingerprint(load_checkpoint(source, device="cpu").weight_files) == shipped(name)
