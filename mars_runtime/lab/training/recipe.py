"""All hyperparameters of a training run. A recipe is saved with the weights. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StageName = Literal["ar", "mars", "block_diffusion"]


@dataclass(frozen=True)
class Shape:
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
    """tokens, batch_tokens: count both streams, prompts and padding. prompt_weight: weight of the
    prompt in the loss, above 0 for models without pretraining."""

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
    """mixture: source of examples -> share. clean_weight: weight of the clean loss in stage
    ``mars`` (paper, section 3.2). masked_share: share of a response's blocks in the noisy stream;
    the paper uses 1. tokenizer: the checkpoint that provides it; None trains a new one."""

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
"""A tale has about five times as many tokens as a task."""

CPU = Recipe(
    name="cpu",
    shape=Shape(2048, 256, 640, 6, 4, 2),
    ar=Stage(33_000_000, 1024, 1.2e-3, 200_000, prompt_weight=0.5),
    mars=Stage(46_000_000, 1536, 8e-4, 200_000),
    mixture=MIXTURE,
    # The stage is short, so the next two values favour the clean stream, to keep AR accurate.
    clean_weight=16.0,
    masked_share=1 / 3,
)

DRAFT = Recipe(
    name="draft",
    shape=Shape(2048, 128, 320, 4, 2, 1),
    ar=Stage(120_000_000, 8_192, 2e-3, 1_000_000, prompt_weight=0.5),
    mars=Stage(8_000_000, 2_048, 1e-3, 200_000),
    mixture=MIXTURE,
    block_size=4,
    # Draft models mostly decode with AR, so the clean loss, which trains AR, has a high weight.
    clean_weight=4.0,
    compile=False,
    tokenizer="mars-tiny",
    precision="no",
)

TWIN = Recipe(
    name="twin",
    shape=CPU.shape,
    ar=CPU.ar,
    mars=Stage(120_000_000, 8_192, 1.2e-3, 1_000_000),
    mixture=MIXTURE,
    tokenizer="mars-tiny",
)
"""Of the shape of mars-tiny, with the paper's loss weights."""

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (CPU, DRAFT, TWIN)}
