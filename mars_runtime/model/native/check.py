"""Whether the compiled library computes what it should on this machine.

A small random model is run by it and by ``qwen2.py`` on the same numbers. Knows no checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch

from mars_runtime.model.config import ModelConfig, expected_names, expected_shape
from mars_runtime.model.grouped import GroupedMatrix
from mars_runtime.model.native.compile import CompileError
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.native.weights import Weight
from mars_runtime.model.qwen2 import Qwen2

LEAST_COSINE = 0.98
NUM_TOKENS = 40  # more than a block of the cache

CONFIG = ModelConfig(
    vocab_size=80,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    intermediate_size=96,
    tie_word_embeddings=True,
    max_positions=64,
)


@torch.inference_mode()
def check_library(library: Any) -> None:
    """Raises CompileError when logits are not those of plain PyTorch, or depend on company."""
    generator = torch.Generator().manual_seed(0)
    for bits in (4, 8):
        weights: dict[str, Weight] = {}
        for name in sorted(expected_names(CONFIG)):
            values = torch.randn(expected_shape(name, CONFIG), generator=generator)
            is_matrix = values.dim() == 2
            kept = 8 if "embed" in name else bits
            weights[name] = GroupedMatrix.quantize(values / 4, kept) if is_matrix else values
        dense = {
            name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
            for name, weight in weights.items()
        }
        tokens = torch.randint(0, CONFIG.vocab_size, (1, NUM_TOKENS), generator=generator)
        plain, native = Qwen2(CONFIG, dense), NativeModel(CONFIG, weights, library)
        expected = plain.logits(plain.hidden(tokens, plain.new_cache(1, 64)), slice(None))
        found = native.logits(native.hidden(tokens, native.new_cache(1, 64)), slice(None))
        cosine = torch.nn.functional.cosine_similarity(expected, found, dim=-1).min()
        if not cosine > LEAST_COSINE:
            raise CompileError(f"The compiled library computes wrongly here ({cosine:.3f}).")
        cache, alone = native.new_cache(1, 64), []
        for token in tokens.unbind(1):
            alone.append(native.hidden(token.unsqueeze(1), cache))
            cache.cursors[0] += 1
        if not torch.equal(native.logits(torch.cat(alone, 1), slice(None)), found):
            raise CompileError("The compiled library rounds a token by its company here.")
