"""What is trained to be compared: a list of small descriptions, each one change from MARS, and
what all their trainings share.

Knows recipes; knows no torch and no result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mars_runtime.lab.training.recipe import (
    CPU,
    MARS_NOISE,
    MIXTURE,
    Noise,
    Recipe,
    Stage,
    StageName,
)

START = "ar-tiny"
STARTS = (START, "ar-tiny-draft")
"""Bundled checkpoints of one tokenizer that variants can start from; the second takes a CPU a fifth
of the time."""
BUDGET_TOKENS = 6_000_000
LEAST_BATCH = 512
CHECKPOINTS: dict[str, StageName] = {
    "ar-tiny-draft": "ar",
    "block-diffusion-tiny": "block_diffusion",
}
"""Checkpoints that are trained beside the variants, as long as there is time."""

ABLATION = Recipe(
    name="ablation",
    shape=CPU.shape,
    ar=CPU.ar,
    mars=Stage(BUDGET_TOKENS, 4_096, 1.2e-3, BUDGET_TOKENS // 20),
    mixture=MIXTURE,
    block_size=8,
    clean_weight=1.0,
    masked_share=1.0,
    compile=False,
    precision="no",
)
"""The paper's method at the size of mars-tiny: all blocks are masked, both losses count alike."""


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank updates in place of all weights. is_gated: they act on masks alone."""

    is_gated: bool
    rank: int = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """One training. change: what differs from ``mars-b8``.

    rate: of the learning rate of the others, for updates that need another. is_trained: or measured
    as it is, once.
    """

    name: str
    change: str
    stage: Literal["ar", "mars"] = "mars"
    block_size: int = 8
    clean_weight: float = 1.0
    noise: Noise = MARS_NOISE
    lora: Lora | None = None
    rate: float = 1.0
    is_trained: bool = True

    def recipe(self, seed: int, tokens: int) -> Recipe:
        """Its recipe at a budget of ``tokens``: a smaller one has as many steps, of fewer tokens,
        as long as a step has ``LEAST_BATCH``, at a learning rate that goes with their root."""
        usual = ABLATION.mars
        batch_tokens = max(LEAST_BATCH, round(usual.batch_tokens * tokens / BUDGET_TOKENS))
        stage = replace(
            usual,
            tokens=tokens,
            batch_tokens=batch_tokens,
            learning_rate=self.rate
            * usual.learning_rate
            * math.sqrt(batch_tokens / usual.batch_tokens),
            warmup_tokens=tokens // 20,
        )
        return replace(
            ABLATION,
            name=self.name,
            mars=stage,
            block_size=self.block_size,
            clean_weight=self.clean_weight,
            seed=ABLATION.seed + seed,
        )


VARIANTS: tuple[Variant, ...] = (
    Variant("start", "no training", stage="ar", is_trained=False),
    Variant("mars-b8", "nothing"),
    Variant("ar", "AR training on as many tokens", stage="ar", block_size=1),
    Variant("no-sft-b8", "no SFT loss", clean_weight=0.0),
    Variant("mars-b4", "blocks of 4", block_size=4),
    Variant("no-sft-b4", "blocks of 4, no SFT loss", block_size=4, clean_weight=0.0),
    Variant("mars-b16", "blocks of 16", block_size=16),
    Variant("no-sft-b16", "blocks of 16, no SFT loss", block_size=16, clean_weight=0.0),
    Variant("weight-0.25", "the SFT loss counts 0.25 times", clean_weight=0.25),
    Variant("weight-4", "the SFT loss counts 4 times", clean_weight=4.0),
    Variant("weight-16", "the SFT loss counts 16 times", clean_weight=16.0),
    Variant(
        "random-mask",
        "token masking: a random share of the whole response is masked, not whole blocks",
        noise=Noise(masking="everywhere"),
    ),
    Variant(
        "bidirectional",
        "attention pattern: masks see all masks of their block",
        noise=Noise(is_causal=False),
    ),
    Variant(
        "unshifted",
        "logits alignment: a mask predicts its own token, not the one after it",
        noise=Noise(is_shifted=False),
    ),
    Variant(
        "no-clean-stream",
        "one stream: a text ends with one block of masks",
        noise=Noise(has_clean_stream=False),
    ),
    Variant(
        "lora-gated",
        "low-rank updates that act on masks alone",
        lora=Lora(is_gated=True),
        rate=2.0,
    ),
    Variant("lora", "low-rank updates", lora=Lora(is_gated=False), rate=2.0),
)


@dataclass(frozen=True, slots=True)
class AblationPlan:
    """What all jobs share. start: the checkpoint that variants start from; until: of
    ``time.monotonic``, when trainings under way are given up; num_prompts: of each family; tokens,
    seconds: of each variant, whichever is spent first, both streams and padding counted."""

    data: Path
    out: Path
    start: str
    tokens: int
    seconds: float
    num_prompts: int
    num_shards: int
    shard_examples: int
    until: float = math.inf

    @property
    def shards(self) -> Path:
        """The folder of the training examples."""
        return self.out / "shards"

    def shard(self, number: int) -> Path:
        """Where a shard of them is kept."""
        return self.shards / f"{number}.npz"

    def result(self, name: str, seed: int) -> Path:
        """Where the result of a variant is kept."""
        return self.out / "runs" / f"{name}-{seed}" / "result.json"
