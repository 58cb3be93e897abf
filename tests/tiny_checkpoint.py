"""A checkpoint folder with random weights in the layout of the bundled ones, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from mars_runtime.model.config import ModelConfig, expected_names, expected_shape
from mars_runtime.text import Tokenizer
from tests.tiny_tokenizer import write_tokenizer


def write_checkpoint(
    folder: Path, max_positions: int = 512, write: Callable[[Path], Path] = write_tokenizer
) -> Path:
    write(folder)
    config = {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu",
        "vocab_size": Tokenizer.from_dir(folder).size, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
        "max_position_embeddings": max_positions, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "mars_block_size": 8,
    }  # fmt: skip
    return write_model(folder, config)


def write_model(
    folder: Path, config: dict[str, Any], spread: float = 0.25, dtype: torch.dtype = torch.float32
) -> Path:
    """Write config.json and random weights, all norms 1, into ``folder`` and return it."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shape, generator = ModelConfig.from_dict(config), torch.Generator().manual_seed(0)
    weights = {}
    for name in sorted(expected_names(shape)):
        weight = torch.ones(expected_shape(name, shape), dtype=dtype)
        weights[name] = weight if "norm" in name else weight.normal_(0, spread, generator=generator)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
