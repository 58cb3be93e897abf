"""A checkpoint folder with random weights in the layout of the bundled ones, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from mars_runtime.text import Tokenizer
from tests.tiny_tokenizer import write_tokenizer

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER = 32, 2, 4, 2, 8, 48


def write_checkpoint(
    folder: Path,
    seed: int = 0,
    max_positions: int = 512,
    write: Callable[[Path], Path] = write_tokenizer,
) -> Path:
    """Write config.json, model.safetensors and a tokenizer into ``folder`` and return it.

    write: writes the tokenizer.
    """
    write(folder)
    vocab_size = Tokenizer.from_dir(folder).size
    config = {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INNER,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "mars_block_size": 8,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    generator = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (vocab_size, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for index in range(LAYERS):
        shapes |= _layer(f"model.layers.{index}.")
    weights = {
        name: torch.ones(shape) if "norm" in name else torch.randn(shape, generator=generator) / 4
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors")
    return folder


def _layer(prefix: str) -> dict[str, tuple[int, ...]]:
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    attention, feed = f"{prefix}self_attn.", f"{prefix}mlp."
    return {
        f"{prefix}input_layernorm.weight": (HIDDEN,),
        f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
        f"{attention}q_proj.weight": (queries, HIDDEN),
        f"{attention}q_proj.bias": (queries,),
        f"{attention}k_proj.weight": (keys, HIDDEN),
        f"{attention}k_proj.bias": (keys,),
        f"{attention}v_proj.weight": (keys, HIDDEN),
        f"{attention}v_proj.bias": (keys,),
        f"{attention}o_proj.weight": (HIDDEN, queries),
        f"{feed}gate_proj.weight": (INNER, HIDDEN),
        f"{feed}up_proj.weight": (INNER, HIDDEN),
        f"{feed}down_proj.weight": (HIDDEN, INNER),
    }
