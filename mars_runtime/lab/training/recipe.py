"""Everything that determines a training run, as frozen values that are saved with the weights.

This module does not import torch, so a recipe can be read, printed and compared anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StageName = Literal["ar", "mars", "block_diffusion"]
Masking = Literal["block", "random", "everywhere"]


@dataclass(frozen=True)
class Noise:
    """How the noisy stream is built and read. The defaults are MARS's; each change makes the stream
    less like AR (paper, section 3.1).

    masking: ``block``: every position of a block is a mask; ``random``: each is a mask with a
    probability that is drawn for its block, the others keep their tokens; ``everywhere``: the same,
    with the whole response as one block. is_causal: whether a position sees only earlier positions
    of its block, or all of it. is_shifted: whether a mask predicts the token after it, or its own.
    has_clean_stream: whether blocks see the clean stream, so that one text trains all of its
    blocks; without it a text ends with one block of masks.
    """

    masking: Masking = "block"
    is_causal: bool = True
    is_shifted: bool = True
    has_clean_stream: bool = True


MARS_NOISE = Noise()
BLOCK_DIFFUSION_NOISE = Noise(masking="random", is_causal=False, is_shifted=False)


@dataclass(frozen=True)
class Shape:
    """Size of the Qwen2 model; the head size is hidden_size / num_heads."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    max_positions: int = 1024
    rope_theta: float = 10_000.0


@dataclass(frozen=True)
class Stage:
    """One pass of the optimizer.

    tokens: budget, which counts every token of a forward pass (both streams, prompts, padding).
    batch_tokens: about this many of them per step. prompt_weight: weight of the prompt's own tokens
    in the loss, for models without pretraining.
    """

    tokens: int
    batch_tokens: int
    learning_rate: float
    warmup_tokens: int
    prompt_weight: float = 0.0
    final_ratio: float = 0.05
    weight_decay: float = 0.05
    grad_clip: float = 1.0
    beta2: float = 0.98


@dataclass(frozen=True)
class Recipe:
    """Recipe of a pair of checkpoints.

    mixture: share of examples by source (``data.py``). block_size: trained depth B. clean_weight:
    weight of the clean loss in stage ``mars`` (paper, section 3.2, "SFT loss"). masked_share: share
    of a response's blocks in the noisy stream of stage ``mars``; 1 in the paper, and a smaller
    share leaves more of the budget for other texts. tokenizer: the bundled checkpoint to copy the
    tokenizer from, if any. precision: of accelerate.
    """

    name: str
    shape: Shape
    ar: Stage
    mars: Stage
    mixture: tuple[tuple[str, float], ...]
    block_size: int = 8
    clean_weight: float = 1.0
    masked_share: float = 1.0
    max_length: int = 512
    shard_examples: int = 4096
    seed: int = 20260407
    compile: bool = True
    tokenizer: str | None = None
    precision: Literal["bf16", "no"] = "bf16"


MIXTURE: tuple[tuple[str, float], ...] = (
    ("word_problems", 0.24),
    ("python_functions", 0.12),
    ("formats", 0.13),
    ("symbolic", 0.24),
    ("multiple_choice", 0.12),
    ("reading", 0.10),
    ("fairytale", 0.02),
    ("tales", 0.03),
)
"""Shares of examples, not of tokens: a tale is about five times as long as a task."""

CPU = Recipe(
    name="cpu",
    shape=Shape(2048, 256, 640, 6, 4, 2),
    ar=Stage(33_000_000, 1024, 1.2e-3, 200_000, prompt_weight=0.5),
    mars=Stage(46_000_000, 1536, 8e-4, 200_000),
    mixture=MIXTURE,
    # Both values favour the clean stream, because a stage this short must not cost AR accuracy.
    clean_weight=16.0,
    masked_share=1 / 3,
)

GPU = Recipe(
    name="gpu",
    shape=Shape(4096, 384, 1024, 9, 6, 2),
    ar=Stage(1_000_000_000, 32_768, 1.5e-3, 10_000_000, prompt_weight=0.5),
    mars=Stage(600_000_000, 32_768, 6e-4, 5_000_000),
    mixture=MIXTURE,
    shard_examples=65_536,
)

DRAFT = Recipe(
    name="draft",
    shape=Shape(2048, 128, 320, 4, 2, 1),
    ar=Stage(120_000_000, 8_192, 2e-3, 1_000_000, prompt_weight=0.5),
    mars=Stage(8_000_000, 2_048, 1e-3, 200_000),
    mixture=MIXTURE,
    block_size=4,
    # A draft model is mainly used for AR's own tokens, so masks must not cost their accuracy.
    clean_weight=4.0,
    compile=False,
    tokenizer="mars-tiny",
    precision="no",
)
"""A draft model for speculative decoding: the token ids of mars-tiny at a fifth of its size."""

TWIN = Recipe(
    name="twin",
    shape=CPU.shape,
    ar=CPU.ar,
    mars=Stage(120_000_000, 8_192, 1.2e-3, 1_000_000),
    mixture=MIXTURE,
    tokenizer="mars-tiny",
)
"""The shape of mars-tiny with the paper's loss weights, for stage ``block_diffusion``."""

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (CPU, GPU, DRAFT, TWIN)}
