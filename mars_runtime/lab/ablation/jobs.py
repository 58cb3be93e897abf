"""What a worker process does: write a shard, train and measure a variant, train a checkpoint.

Results are on disk when a job returns. Knows one job at a time; knows no other worker.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from mars_runtime.lab.ablation import shards
from mars_runtime.lab.ablation.lora import put_lora
from mars_runtime.lab.ablation.measure import measure
from mars_runtime.lab.ablation.variants import ABLATION, START, Variant
from mars_runtime.lab.training.data import Corpus, encoded
from mars_runtime.lab.training.recipe import DRAFT, TWIN, StageName
from mars_runtime.lab.training.tokenizer import put_tokenizer
from mars_runtime.lab.training.train import Trainer
from mars_runtime.model.registry import REGISTRY
from mars_runtime.outputs import write_text
from mars_runtime.text import Tokenizer

CHECKPOINTS: dict[str, StageName] = {
    "ar-tiny-draft": "ar",
    "block-diffusion-tiny": "block_diffusion",
}
"""Checkpoints that are trained beside the variants, as long as there is time."""
SAVE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
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

    def result(self, name: str, seed: int) -> Path:
        """Where the result of a variant is kept."""
        return self.out / "runs" / f"{name}-{seed}" / "result.json"


def start_worker(threads: int, device: str) -> None:
    """Settings of a new process."""
    if device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(threads)
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def start_folder(name: str) -> Path:
    """Of a bundled checkpoint."""
    return REGISTRY.parent / name


@cache
def _texts(data: Path, shard_examples: int) -> Corpus:
    return Corpus(data, replace(ABLATION, shard_examples=shard_examples))


def write_shard(plan: Plan, shard: int) -> None:
    """Make a shard of examples, if it is not there."""
    if not shards.path_of_shard(plan.shards, shard).exists():
        corpus = _texts(plan.data, plan.shard_examples)
        tokenizer = Tokenizer.from_dir(start_folder(plan.start))
        examples = encoded(corpus, tokenizer, ABLATION, shard)
        shards.write_shard(plan.shards, shard, examples)


def train_variant(plan: Plan, variant: Variant, seed: int) -> str:
    """Train and measure; a line about it. Nothing is kept of what did not come to its end."""
    name = f"{variant.name}, seed {seed}"
    if time.monotonic() > plan.until:
        return f"{name}: not begun"
    path = plan.result(variant.name, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    trainer = _variant_trainer(plan, variant, seed, path.parent)
    began = time.monotonic()
    trainer.end_by(began + plan.seconds)
    torch.set_float32_matmul_precision("high")
    for _ in trainer.logged():
        if time.monotonic() > plan.until:
            return f"{name}: stopped at {trainer.progressed.tokens:,} tokens"
    seconds = time.monotonic() - began
    ways = _measured(plan, trainer, variant.stage == "ar")
    result = {
        "variant": variant.name,
        "seed": seed,
        "tokens": trainer.progressed.tokens,
        "steps": trainer.progressed.step,
        "seconds": round(seconds, 1),
        "measuring_seconds": round(time.monotonic() - began - seconds, 1),
        "losses": {key: round(value, 4) for key, value in trainer.log.terms.items()},
        "ways": ways,
        "description": asdict(variant),
    }
    write_text(path, json.dumps(result, indent=1) + "\n")
    losses = " ".join(f"{key} {value:.3f}" for key, value in trainer.log.terms.items())
    return f"{name}: {trainer.progressed.tokens:,} tokens in {seconds:.0f} s, {losses}"


def _variant_trainer(plan: Plan, variant: Variant, seed: int, out: Path) -> Trainer:
    recipe = variant.recipe(seed, plan.tokens if variant.is_trained else 0)
    # Variants of one seed read the same texts, other seeds others.
    first = seed * plan.num_shards // 4
    lora, start = variant.lora, start_folder(plan.start)

    def adapt(model: Any) -> None:
        if lora is not None:
            put_lora(model, lora, Tokenizer.from_dir(start).mask_id, recipe.seed)

    return Trainer(
        recipe,
        variant.stage,
        shards.cycled(plan.shards, plan.num_shards, first),
        out,
        start,
        noise=variant.noise,
        adapt=adapt,
    )


def train_checkpoint(plan: Plan, name: str) -> str:
    """Train one of ``CHECKPOINTS`` until its budget or the time is spent; a line about it."""
    stage, out = CHECKPOINTS[name], plan.out / "checkpoints" / name
    if (out / "config.json").exists():
        return f"{name}: there already"
    if time.monotonic() > plan.until:
        return f"{name}: not begun"
    start = None if stage == "ar" else start_folder(START)
    recipe = replace(DRAFT if stage == "ar" else TWIN, compile=False, precision="no")
    out.mkdir(parents=True, exist_ok=True)
    put_tokenizer(recipe, plan.data, out, start)
    examples = shards.cycled(plan.shards, plan.num_shards, 0)
    trainer = Trainer(recipe, stage, examples, out, start)
    trainer.end_by(plan.until - SAVE_SECONDS)
    torch.set_float32_matmul_precision("high")
    info = "nothing read"
    for line in trainer.logged():
        info = line
    trainer.save()
    ways = _measured(plan, trainer, is_ar=True)
    write_text(out / "measured.json", json.dumps(ways) + "\n")
    return f"{name}: {trainer.progressed.tokens:,} tokens, {info}"


def _measured(plan: Plan, trainer: Trainer, is_ar: bool) -> dict[str, Any]:
    torch.set_float32_matmul_precision("highest")
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    return measure(model, trainer.tokenizer, trainer.noise, plan.num_prompts, is_ar=is_ar)
