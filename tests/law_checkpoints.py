"""Set-up that the laws share: checkpoints, prompts for them, runs, and what AR writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from helpers import tokens_of, word_sequence

from mars_runtime import tasks
from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.draft_model import DraftModel, DraftModels
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs.events import Event
from mars_runtime.settings import DecodeSettings

BUNDLED = ["ar-tiny", "mars-tiny"]
SAMPLED = ["mars-tiny", pytest.param("ar-tiny", marks=pytest.mark.slow)]
"""For laws that hold with masks and without in the same way."""
_written: dict[tuple[Any, ...], tuple[Checkpoint, list[list[int]]]] = {}


@cache
def load(name: str) -> Checkpoint:
    return load_checkpoint(name, device="cpu", dtype="fp32")


@cache
def task_prompts(name: str, count: int) -> tuple[tuple[int, ...], ...]:
    share = -(-count // len(tasks.FAMILIES))
    columns = [tasks.generate(family, "eval", 11, share) for family in tasks.FAMILIES]
    texts = [task.prompt for group in zip(*columns, strict=True) for task in group]
    encode = load(name).tokenizer.encode_prompt
    return tuple(tuple(encode(text)) for text in texts[:count])


def word_prompts(checkpoint: Checkpoint, count: int, seed: int = 0) -> list[list[int]]:
    """Beginnings of the language that the foreseeing checkpoint knows."""
    rng = random.Random(seed)
    eos = checkpoint.tokenizer.end_id
    rows = [word_sequence(rng, rng.choice((2, 7, 15, 26)), eos) for _ in range(4 * count)]
    return [row for row in rows if eos not in row][:count]


COSTS = ForwardCosts(8, {1: (1.0, 1.05, 1.1, 1.2, 1.3), 4: (1.0, 1.05, 1.1, 1.2, 1.3)})
"""Of a machine where drafting pays, for ``block_size="auto"``."""


def draft_of(checkpoint: Checkpoint, block_size: int = MAX_BLOCK_SIZE) -> DraftModel:
    return DraftModel(checkpoint.model, checkpoint.tokenizer, block_size)


def models_of(draft: DraftModel, block_size: int = MAX_BLOCK_SIZE) -> DraftModels:
    return DraftModels(lambda name: draft, block_size)


def run(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    draft: Checkpoint | None = None,
) -> list[Event]:
    models = None if draft is None else models_of(draft_of(draft))
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    return list(decode(model, tokenizer, prompts, lambda: settings, COSTS, draft_models=models))


def plain(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int, **changes: Any
) -> list[list[int]]:
    """Return what AR writes; cached, because many methods are compared with it."""
    key = id(checkpoint), tuple(map(tuple, prompts)), limit, tuple(sorted(changes.items()))
    if key not in _written:
        settings = DecodeSettings("ar", max_new_tokens=limit, **changes)
        events = decode(checkpoint.model, checkpoint.tokenizer, prompts, lambda: settings)
        _written[key] = checkpoint, tokens_of(events, len(prompts))
    return [list(tokens) for tokens in _written[key][1]]


def transformers_greedy(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], limit: int, **changes: Any
) -> list[list[int]]:
    """Greedy generate with the same forbidden ids and ``changes``; prompts of one length share a
    batch."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32).eval()
    tokenizer, size = checkpoint.tokenizer, checkpoint.model.config.vocab_size
    never = sorted(tokenizer.forbidden_ids | set(range(tokenizer.size, size)))
    answers: dict[int, list[int]] = {}
    for length in {len(prompt) for prompt in prompts}:
        places = [place for place, prompt in enumerate(prompts) if len(prompt) == length]
        ids = torch.tensor([prompts[place] for place in places])
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                do_sample=False,
                suppress_tokens=never,
                eos_token_id=sorted(tokenizer.eos_ids),
                pad_token_id=tokenizer.pad_id,
                **changes,
            )
        for place, row in zip(places, out[:, length:].tolist(), strict=True):
            ends = [i for i, token in enumerate(row) if token in tokenizer.eos_ids]
            answers[place] = row[: ends[0] + 1] if ends else row
    return [answers[place] for place in range(len(prompts))]
