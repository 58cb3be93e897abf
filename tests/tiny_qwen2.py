"""transformers' own Qwen2 with random weights, small enough for any test."""

from __future__ import annotations

from typing import Any

import torch


def tiny_qwen2(seed: int = 1, **more: Any) -> Any:
    """A model of 40 tokens and two layers; ``more`` goes to its configuration."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        **more,
    )
    return Qwen2ForCausalLM(config)
