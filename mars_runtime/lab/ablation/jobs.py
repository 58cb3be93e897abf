"""The jobs of an ablation's worker processes: write a shard of examples, train a variant.

Each job writes its results to disk before it returns.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mars_runtime import tasks
from mars_runtime.lab.ablation.decode import Decoded, GreedyBatch, SpecialIds
from mars_runtime.lab.ablation.lora import put_lora
from mars_runtime.lab.ablation.variants import (
    ABLATION,
    AblationPlan,
    Variant,
)
from mars_runtime.lab.evaluation.measure import by_length
from mars_runtime.lab.evaluation.prompts import PromptSet, load_prompts
from mars_runtime.lab.training.data import Corpus, Examples, TrainingExample, encoded
from mars_runtime.lab.training.recipe import Noise
from mars_runtime.lab.training.train import Trainer
from mars_runtime.model.registry import REGISTRY
from mars_runtime.outputs import write_text
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

WAYS = {
    "ar": DecodeSettings("ar", 1.0, 1),
    **{
        f"mars {tau:g} B{size}": DecodeSettings("mars", tau, size)
        for tau in (0.95, 0.8)
        for size in (4, 8)
    },
    **{f"lossless 0 B{size}": DecodeSettings("mars", 0.0, size, lossless=True) for size in (4, 8)},
}
"""The decoding methods with which the variants of an ablation are measured: name -> settings."""
MAX_NEW_TOKENS = 160
PROMPT_SEED = 3
CPU_ROWS, GPU_ROWS = 64, 1024


def start_worker(threads: int, device: str) -> None:
    if device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(threads)
    from transformers.utils import logging

    logging.disable_progress_bar()


def start_folder(name: str) -> Path:
    """Return the folder of a bundled checkpoint."""
    return REGISTRY.parent / name


@cache
def _texts(data: Path, shard_examples: int) -> Corpus:
    return Corpus(data, replace(ABLATION, shard_examples=shard_examples))


def write_shard(plan: AblationPlan, shard: int) -> None:
    """Write a shard of training examples, unless its file exists. The write is atomic."""
    path = plan.shard(shard)
    if path.exists():
        return
    corpus = _texts(plan.data, plan.shard_examples)
    examples = encoded(corpus, Tokenizer.from_dir(start_folder(plan.start)), ABLATION, shard)
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial,
        ids=np.concatenate([np.array(example.ids, np.int32) for example in examples]),
        ends=np.cumsum([len(example.ids) for example in examples]),
        starts=np.array([example.response_start for example in examples]),
    )
    partial.replace(path)


def shards_from(plan: AblationPlan, first: int) -> Examples:
    """Return a function that reads shard ``first`` on disk for 0, the next shard for 1, and so on.

    After the last shard on disk, the function continues with shard 0.
    """

    def read(shard: int) -> list[TrainingExample]:
        with np.load(plan.shard((first + shard) % plan.num_shards)) as stored:
            ids, ends, starts = (stored[name].tolist() for name in ("ids", "ends", "starts"))
        spans = zip(pairwise([0, *ends]), starts, strict=True)
        return [TrainingExample(tuple(ids[begin:end]), start) for (begin, end), start in spans]

    return read


def train_variant(plan: AblationPlan, variant: Variant, seed: int) -> str:
    """Train and measure a variant, write the result, and return a log line.

    If the time limit of the plan stops the training, no result is written.
    """
    name = f"{variant.name}, seed {seed}"
    if time.monotonic() > plan.until:
        return f"{name}: not started"
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


def _variant_trainer(plan: AblationPlan, variant: Variant, seed: int, out: Path) -> Trainer:
    recipe = variant.recipe(seed, plan.tokens if variant.is_trained else 0)
    # All variants of a seed train on the same texts; each seed starts at a different shard.
    first = seed * plan.num_shards // 4
    lora, start = variant.lora, start_folder(plan.start)

    def adapt(model: Any) -> None:
        if lora is not None:
            put_lora(model, lora, Tokenizer.from_dir(start).mask_id, recipe.seed)

    return Trainer(
        recipe,
        variant.stage,
        shards_from(plan, first),
        out,
        start,
        noise=variant.noise,
        adapt=adapt,
    )


def _measured(
    plan: AblationPlan, trainer: Trainer, is_ar: bool
) -> dict[str, dict[str, dict[str, int]]]:
    torch.set_float32_matmul_precision("highest")
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    return measure(model, trainer.tokenizer, trainer.noise, plan.num_prompts, is_ar=is_ar)


@cache
def prompt_sets(count: int) -> list[PromptSet]:
    """Return ``count`` held-out prompts of every task family that has a checker."""
    return load_prompts(list(tasks.FAMILIES), PROMPT_SEED, count)


@cache
def _is_right(count: int, family: int, index: int, text: str) -> bool:
    """Return whether the checker of a prompt accepts the answer ``text``.

    The result is cached, because variants often give equal answers and some checkers run code.
    """
    return prompt_sets(count)[family].judge(index, text) is True


def measure(
    model: Any, tokenizer: Tokenizer, noise: Noise, count: int, *, is_ar: bool
) -> dict[str, dict[str, dict[str, int]]]:
    """Decode ``count`` prompts per family with each method; return counts by method and family.

    The counts are prompts, right answers, tokens, forward passes, and answers equal to AR's.

    is_ar: whether ``model`` was trained without masks; then only AR is measured.
    """
    sets = prompt_sets(count)
    device = next(model.parameters()).device
    forbidden = {*tokenizer.forbidden_ids, *range(tokenizer.size, model.config.vocab_size)}
    never = torch.tensor(sorted(forbidden), device=device)
    ids = SpecialIds(tokenizer.mask_id, tokenizer.im_end_id, never)
    prompts = [
        tokenizer.encode_prompt(task.prompt) for prompt_set in sets for task in prompt_set.tasks
    ]
    rows = GPU_ROWS if device.type == "cuda" else CPU_ROWS
    counts: dict[str, dict[str, dict[str, int]]] = {}
    ar_answers: list[Decoded] = []
    for name in ("ar",) if is_ar else WAYS:
        decoded: dict[int, Decoded] = {}
        for batch in by_length(prompts, rows):
            texts = [prompts[number] for number in batch]
            answers = GreedyBatch(model, texts, WAYS[name], noise, ids, MAX_NEW_TOKENS)
            decoded.update(zip(batch, answers.decoded(), strict=True))
        in_order = [decoded[number] for number in range(len(prompts))]
        ar_answers = ar_answers or in_order
        pairs = iter(zip(in_order, ar_answers, strict=True))
        counts[name] = {
            prompt_set.family: _counts(
                [next(pairs) for _ in prompt_set.tasks], tokenizer, count, number
            )
            for number, prompt_set in enumerate(sets)
        }
    return counts


def _counts(
    pairs: Sequence[tuple[Decoded, Decoded]], tokenizer: Tokenizer, count: int, family: int
) -> dict[str, int]:
    texts = [
        tokenizer.decode([token for token in answer.tokens if token not in tokenizer.eos_ids])
        for answer, _ in pairs
    ]
    return {
        "num_prompts": len(pairs),
        "num_right": sum(_is_right(count, family, n, text) for n, text in enumerate(texts)),
        "num_tokens": sum(len(answer.tokens) for answer, _ in pairs),
        "num_forwards": sum(answer.num_forwards for answer, _ in pairs),
        "num_as_ar": sum(answer.tokens == ar.tokens for answer, ar in pairs),
    }
