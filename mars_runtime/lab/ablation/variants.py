"""Define the training variants that an ablation compares with MARS."""

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
)

START = "ar-tiny"
STARTS = (START, "ar-tiny-draft")
"""Bundled checkpoints to start from. On a CPU, the second checkpoint trains five times as fast."""
BUDGET_TOKENS = 6_000_000
LEAST_BATCH = 512
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
"""The recipe of the paper, for a model of the size of mars-tiny.

All blocks are masked, and both losses have the weight 1.
"""


@dataclass(frozen=True, slots=True)
class Lora:
    """Settings to train low-rank updates instead of all weights.

    is_gated: whether the updates act only at masks.
    """

    is_gated: bool
    rank: int = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of MARS training, or a starting checkpoint.

    change: the difference from the variant ``mars-b8``, in words. rate: factor by which the
    learning rate is multiplied. is_trained: False for the starting checkpoint, which is only
    measured.
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
        """Return the training recipe of this variant for a budget of ``tokens``.

        The tokens per batch are proportional to the budget, so that the number of steps stays the
        same, but are at least LEAST_BATCH. The learning rate scales with the square root of the
        batch size.
        """
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
        "low-rank updates that act on masks only",
        lora=Lora(is_gated=True),
        rate=2.0,
    ),
    Variant("lora", "low-rank updates", lora=Lora(is_gated=False), rate=2.0),
)


@dataclass(frozen=True, slots=True)
class AblationPlan:
    """The plan that all jobs of an ablation share.

    - start: name of the checkpoint from which all variants start.
    - tokens, seconds: limits of each training, which ends when it reaches one of them. ``tokens``
      counts the tokens of both streams (clean and noisy) and padding.
    - num_prompts: number of held-out prompts per family.
    - until: the time at which unfinished trainings are stopped, as a value of ``time.monotonic``.
    """

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
        """The folder with the training examples."""
        return self.out / "shards"

    def shard(self, number: int) -> Path:
        return self.shards / f"{number}.npz"

    def result(self, name: str, seed: int) -> Path:
        return self.out / "runs" / f"{name}-{seed}" / "result.json"
