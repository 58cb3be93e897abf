"""Load a checkpoint: configuration, safetensors and tokenizer, nothing else.

Code that comes with a checkpoint is never run and pickled weights are never opened. Knows no
decoding, and nothing of where checkpoints come from (``registry.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mars_runtime.model.build import Model, build_model
from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names
from mars_runtime.model.registry import REGISTRY, find
from mars_runtime.text import TextError, Tokenizer

DEFAULT_BLOCK_SIZE = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model with its tokenizer and what is known about it.

    block_size: the B it was trained with; more proposals than that are off its training.
    """

    name: str
    path: Path
    model: Model
    tokenizer: Tokenizer
    block_size: int
    licence: str
    note: str


def load_checkpoint(
    name_or_path: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    registry_path: Path = REGISTRY,
) -> Checkpoint:
    """Load a checkpoint by its name in the registry or from a folder.

    device: auto (CUDA where there is one), cpu, cuda, cuda:1 ... dtype: as for ``build_model``.
    Raises CheckpointError, one sentence.
    """
    entry, folder = find(name_or_path, registry_path)
    where = choose_device(device)
    raw = _read_json(folder / "config.json")
    config = ModelConfig.from_dict(raw)
    tokenizer = _tokenizer(folder, config)
    weights = _weights(folder, config)
    model = build_model(config, weights, device=where, dtype=dtype, mask_id=tokenizer.mask_id)
    block_size = entry.block_size if entry else raw.get("mars_block_size", DEFAULT_BLOCK_SIZE)
    return Checkpoint(
        name=entry.name if entry else folder.name,
        path=folder,
        model=model,
        tokenizer=tokenizer,
        block_size=int(block_size),
        licence=entry.licence if entry else "",
        note=entry.note if entry else "",
    )


def choose_device(device: str) -> torch.device:
    """auto (CUDA where there is one), cpu, cuda, cuda:1 ... Raises CheckpointError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise CheckpointError(f"Choose the device auto, cpu or cuda, not {device!r}.")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("This machine has no CUDA device: choose the device cpu.")
    return found


def _tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_dir(folder)
    except TextError as error:
        raise CheckpointError(str(error)) from error
    if tokenizer.size > config.vocab_size:
        raise CheckpointError(
            f"The tokenizer in {folder} has {tokenizer.size} tokens and the model "
            f"{config.vocab_size} rows: fetch tokenizer and weights of the same checkpoint."
        )
    special = {tokenizer.mask_id, tokenizer.pad_id, *tokenizer.eos_ids}
    if min(special) < 0 or tokenizer.mask_id in tokenizer.eos_ids or not tokenizer.eos_ids:
        raise CheckpointError(
            f"The mask, pad and end tokens in {folder} are not ids of their own: fetch it again."
        )
    return tokenizer


def _weights(folder: Path, config: ModelConfig) -> dict[str, Tensor]:
    """All weights by name, checked to be neither too few nor too many; memory is mapped."""
    found: dict[str, Tensor] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} is missing, damaged or incomplete: fetch the checkpoint again."
            ) from error
    found = {
        name: weight for name, weight in found.items() if not name.endswith("rotary_emb.inv_freq")
    }
    if config.tie_word_embeddings:
        found.pop("lm_head.weight", None)  # the same matrix, written out by some tools
    expected = expected_names(config)
    for names, what in (
        (expected - found.keys(), "lacks"),
        (found.keys() - expected, "has unknown"),
    ):
        if names:
            raise CheckpointError(
                f"The checkpoint in {folder} {what} weights ({len(names)}, {min(names)} the "
                f"first): fetch one that is complete and of type {config.model_type}."
            )
    return found


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = _read_json(index).get("weight_map")
        is_plain = isinstance(names, Mapping) and all(
            isinstance(name, str) and re.fullmatch(r"[\w.-]+\.safetensors", name)
            for name in names.values()
        )
        if not isinstance(names, Mapping) or not is_plain:
            raise CheckpointError(f"{index} is damaged: fetch the checkpoint again.")
        return sorted({folder / name for name in names.values()})
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(
            f"There are no safetensors in {folder}: fetch a checkpoint in that format (pickled "
            "weights are never opened)."
        )
    return files


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is missing or damaged: fetch the checkpoint again."
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a configuration: fetch the checkpoint again.")
    return value
