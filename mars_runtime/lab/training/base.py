"""The base of an adapter: shape, dense weights and tokenizer, by its name in the registry, from a
folder in transformers' layout or from a GGUF file. Knows no training."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from mars_runtime.byte_level import TextError, read_spec
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.grouped import GroupedMatrix
from mars_runtime.model.registry import find
from mars_runtime.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Base:
    """name: as given; weights: dense, named and ordered as in a transformers checkpoint;
    mask_token: the name of the tokenizer's token that serves as mask."""

    name: str
    config: ModelConfig
    weights: dict[str, Tensor]
    tokenizer: Tokenizer

    @property
    def mask_token(self) -> str:
        """The name of the mask token."""
        return self.tokenizer.token_bytes(self.tokenizer.mask_id).decode()


def read_base(name_or_path: str) -> Base:
    """Read a base that is on this machine, into host memory whatever the default device is. Raises
    CheckpointError, one sentence."""
    entry, path = find(name_or_path)
    try:
        with torch.device("cpu"):
            config, weights, spec = _read(path)
        mask = entry.mask_token if entry else None
        tokenizer = Tokenizer.from_spec(*spec, mask=mask, name=str(path))
    except (TextError, OSError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    _refuse_what_is_not_computed(config, name_or_path)
    return Base(name_or_path, config, weights, tokenizer)


def _read(path: Path) -> tuple[ModelConfig, dict[str, Tensor], Any]:
    """Shape, dense weights, and what the tokenizer is made from."""
    if path.is_file():
        found = read_gguf(path)
        weights = {
            name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
            for name, weight in found.weights.items()
        }
        return found.config, weights, (found.tokenizer, found.tokenizer_config)
    config = ModelConfig.from_dict(json.loads((path / "config.json").read_text("utf-8")))
    return config, _tensors(path), read_spec(path)


def _tensors(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _refuse_what_is_not_computed(config: ModelConfig, name: str) -> None:
    is_plain = config.model_type == "llama" and config.rope_scaling is None
    if not is_plain or config.attention_bias or not config.tie_word_embeddings:
        raise CheckpointError(
            f"{name} cannot be the base of an adapter here: choose a Llama without biases and "
            "stretched positions whose head is tied to its embedding."
        )
