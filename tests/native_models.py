"""Small random models for the native forward, on each kind of processor that can be emulated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from mars_runtime.model.adapter import Adapter, Update, part_shapes
from mars_runtime.model.config import ModelConfig, expected_names, expected_shape
from mars_runtime.model.native.library import CompileError, compile_library, open_library
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.model.reranker import SamplerWeights
from mars_runtime.system.machine import cache_folder

MASK_ID = 4
LLAMA = ModelConfig(
    vocab_size=150, hidden_size=96, num_layers=2, num_heads=6, num_kv_heads=2, head_dim=32,
    intermediate_size=160, rope_theta=10000.0, tie_word_embeddings=True, attention_bias=False,
    model_type="llama",
)  # fmt: skip
CONFIGS = {
    "llama": LLAMA,
    "qwen2": replace(LLAMA, attention_bias=True, model_type="qwen2"),
    "qwen3": replace(LLAMA, head_dim=64, num_heads=4, qk_norm=True, model_type="qwen3"),
    "untied": replace(LLAMA, tie_word_embeddings=False, vocab_size=149),
    "wide heads": replace(LLAMA, head_dim=64, num_heads=5, num_kv_heads=1),
    "no groups": replace(LLAMA, head_dim=64, num_heads=4, num_kv_heads=4, num_layers=1),
    "odd heads": replace(LLAMA, head_dim=96, num_heads=2, num_kv_heads=1),
}
LARGE = replace(
    LLAMA, hidden_size=512, num_heads=8, head_dim=64, intermediate_size=1536, num_layers=8
)
"""Large enough to be shared out among threads."""
TARGETS = {
    "this processor": None,
    "AVX2 and VNNI": ("-march=alderlake",),
    "AVX2": ("-march=haswell",),
    "plain": (),
}
NEEDED = {"AVX2 and VNNI": "avx_vnni", "AVX2": "avx2"}
"""Features that a processor must have, as Linux names them, to emulate another one."""


@cache
def library_for(target: str) -> Any:
    """The library compiled for a kind of processor; skip the test where that is impossible."""
    flags = TARGETS[target]
    needed = NEEDED.get(target)
    if needed and needed not in Path("/proc/cpuinfo").read_text(encoding="utf-8").split():
        pytest.skip(f"this processor has no {needed}")
    try:
        folder = cache_folder() / "native"
        path = compile_library(folder) if flags is None else compile_library(folder, [flags])
        return open_library(path)
    except CompileError as error:
        pytest.skip(str(error))


def random_weights(config: ModelConfig, bits: int, seed: int = 0) -> dict[str, Any]:
    """Weights with logits that are far from flat, and 8-bit embedding tables."""
    generator = torch.Generator().manual_seed(seed)
    collected: dict[str, Any] = {}
    for name in sorted(expected_names(config)):
        values = torch.randn(expected_shape(name, config), generator=generator)
        if "norm" in name:
            collected[name] = values.abs() + 0.5
        elif values.dim() == 1:
            collected[name] = values / 2
        else:
            num_bits = 8 if "embed" in name or "lm_head" in name else bits
            collected[name] = GroupedMatrix.quantize(values / 8, num_bits)
    return collected


def random_adapter(
    config: ModelConfig, rank: int = 16, num_masks: int = 2, sampler_width: int = 0
) -> Adapter:
    generator = torch.Generator().manual_seed(9)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) / 8

    layers = tuple(
        {
            part: Update(random(rank, ins), random(outs, rank))
            for part, (outs, ins) in part_shapes(config).items()
        }
        for _ in range(config.num_layers)
    )
    sampler = None
    if sampler_width:
        hidden = config.hidden_size
        first, second = random(sampler_width, 2 * hidden), random(hidden, sampler_width)
        sampler = SamplerWeights(first, 4 * second)  # strong enough to tell candidates apart
    return Adapter(random(num_masks, config.hidden_size), layers, 8, "mask", sampler=sampler)


@cache
def native_model(
    name: str, bits: int = 4, *, target: str = "this processor", has_adapter: bool = False,
    sampler_width: int = 0,
) -> NativeModel:  # fmt: skip
    config = LARGE if name == "large" else CONFIGS[name]
    adapter = random_adapter(config, sampler_width=sampler_width) if has_adapter else None
    weights, library = random_weights(config, bits), library_for(target)
    return NativeModel(config, weights, library, adapter=adapter, mask_id=MASK_ID)
