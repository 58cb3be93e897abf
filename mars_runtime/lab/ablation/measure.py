"""Held-out prompts put to a model in training, in every way of decoding that is compared.

Knows tasks, texts and counts; what they mean together is for ``report.py``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from mars_runtime import tasks
from mars_runtime.lab.ablation.decode import Decoded, Ids, Way, decode
from mars_runtime.lab.evaluation.prompts import PromptSet, load_prompts
from mars_runtime.lab.training.recipe import Noise
from mars_runtime.text import Tokenizer

AR = Way("ar")
WAYS: tuple[Way, ...] = (
    AR,
    *(Way("mars", tau, size) for tau in (0.95, 0.8) for size in (4, 8)),
    *(Way("lossless", 0.0, size) for size in (4, 8)),
)
MAX_NEW_TOKENS = 160
PROMPT_SEED = 3
CPU_ROWS, GPU_ROWS = 64, 1024


@cache
def prompt_sets(count: int) -> list[PromptSet]:
    """``count`` held-out prompts of every family with right answers."""
    return load_prompts(list(tasks.FAMILIES), PROMPT_SEED, count)


@cache
def _is_right(count: int, family: int, index: int, text: str) -> bool:
    """The verdict on a text, kept: variants often say the same, and code must be run."""
    return prompt_sets(count)[family].judge(index, text) is True


def measure(
    model: Any, tokenizer: Tokenizer, noise: Noise, count: int, *, is_ar: bool
) -> dict[str, dict[str, dict[str, int]]]:
    """Counts by way and family: prompts, right answers, tokens, forwards, and answers that are
    AR's. is_ar: whether to leave out the ways that need masks."""
    sets = prompt_sets(count)
    device = next(model.parameters()).device
    forbidden = {*tokenizer.forbidden_ids, *range(tokenizer.size, model.config.vocab_size)}
    ids = Ids(
        tokenizer.mask_id, tokenizer.im_end_id, torch.tensor(sorted(forbidden), device=device)
    )
    prompts = [tokenizer.encode_prompt(task.prompt) for one in sets for task in one.tasks]
    rows = GPU_ROWS if device.type == "cuda" else CPU_ROWS
    found: dict[str, dict[str, dict[str, int]]] = {}
    by_ar: list[Decoded] = []
    for way in (AR,) if is_ar else WAYS:
        answers = _in_batches(model, prompts, way, noise, ids, rows)
        by_ar = by_ar or answers
        pairs = iter(zip(answers, by_ar, strict=True))
        found[way.name] = {
            one.family: _counts([next(pairs) for _ in one.tasks], tokenizer, count, number)
            for number, one in enumerate(sets)
        }
    return found


def _in_batches(
    model: Any, prompts: list[list[int]], way: Way, noise: Noise, ids: Ids, rows: int
) -> list[Decoded]:
    """In the order of the prompts; those of like length share a batch."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    found: dict[int, Decoded] = {}
    for first in range(0, len(order), rows):
        batch = order[first : first + rows]
        texts = [prompts[index] for index in batch]
        answers = decode(model, texts, way, noise, ids, MAX_NEW_TOKENS)
        found.update(zip(batch, answers, strict=True))
    return [found[index] for index in range(len(prompts))]


def _counts(
    pairs: list[tuple[Decoded, Decoded]], tokenizer: Tokenizer, count: int, family: int
) -> dict[str, int]:
    answers = [answer for answer, _ in pairs]
    texts = [
        tokenizer.decode([token for token in answer.tokens if token not in tokenizer.eos_ids])
        for answer in answers
    ]
    return {
        "num_prompts": len(answers),
        "num_right": sum(_is_right(count, family, n, text) for n, text in enumerate(texts)),
        "num_tokens": sum(len(answer.tokens) for answer in answers),
        "num_forwards": sum(answer.num_forwards for answer in answers),
        "num_as_ar": sum(answer.tokens == ar.tokens for answer, ar in pairs),
    }
