"""Answers of the base model to many prompts at once: cohorts come and go, the batch stays full.

Knows prompts as token ids and hands back token ids; files and texts are others' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mars_runtime.lab.training.backbone import Backbone
from mars_runtime.lab.training.distill.cohort import Cohort
from mars_runtime.lab.training.distill.loops import find_loop

End = Literal["eos", "length", "loop"]
WINDOW = 512
"""Prompts sorted by length together, so that those of a cohort are about equally long."""


@dataclass(frozen=True, slots=True)
class Answer:
    """index: of the prompt; ids end in EOS where ``end`` is "eos"."""

    index: int
    ids: tuple[int, ...]
    end: End


@dataclass(frozen=True, slots=True)
class Plan:
    """rows: about so many are decoded at once. temperature: 0 is greedy."""

    eos_id: int
    max_tokens: int = 256
    rows: int = 192
    temperature: float = 0.0
    seed: int = 0

    @property
    def cohort(self) -> int:
        """How many rows are started together."""
        return max(1, self.rows // 6)


def cohorts_of(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Indices in cohorts of like length; the order of the list is kept window by window."""
    groups: list[list[int]] = []
    for start in range(0, len(lengths), WINDOW):
        window = sorted(range(start, min(start + WINDOW, len(lengths))), key=lambda i: lengths[i])
        cut = [window[i : i + size] for i in range(0, len(window), size)]
        groups += cut[::2] + cut[1::2][::-1]  # short, long and short again: a steady load
    return groups


@torch.inference_mode()
def generate(model: Backbone, prompts: Sequence[list[int]], plan: Plan) -> Iterator[list[Answer]]:
    """Decode every prompt; yields after each forward the answers that ended with it."""
    random = torch.Generator(torch.get_default_device()).manual_seed(plan.seed)
    waiting = cohorts_of([len(prompt) for prompt in prompts], plan.cohort)[::-1]
    running: list[Cohort] = []
    while waiting or running:
        while waiting and sum(c.num_rows for c in running) + plan.cohort <= plan.rows:
            labels = waiting.pop()
            cohort = Cohort([prompts[i] for i in labels], labels)
            x = cohort.prefill(model)
            cohort.advance(choose(model, x, plan.temperature, random).tolist())
            running.append(cohort)
        _step(model, running, plan.temperature, random)
        yield [answer for cohort in running for answer in _ended(cohort, plan)]
        running = [cohort for cohort in running if cohort.num_rows]


def _step(
    model: Backbone, running: list[Cohort], temperature: float, random: torch.Generator
) -> None:
    """One forward for the rows of all cohorts."""
    sizes = [cohort.num_rows for cohort in running]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(running, *(torch.split(t, sizes) for t in (q, k, v)), strict=True)
        return torch.cat([cohort.attend(layer, *part) for cohort, *part in parts])

    positions = torch.cat([cohort.positions() for cohort in running])
    x = model.embed(torch.cat([cohort.last for cohort in running]))
    x = model.hidden(x, positions, attend)
    chosen = torch.split(choose(model, x, temperature, random), sizes)
    for cohort, tokens in zip(running, chosen, strict=True):
        cohort.step_done()
        cohort.advance(tokens.tolist())


def _ended(cohort: Cohort, plan: Plan) -> list[Answer]:
    """Answers that are over, each once. Loops are looked for when the cache has to grow."""
    full = cohort.is_full()
    answers = []
    for row, tokens in enumerate(cohort.tokens):
        if cohort.is_done[row]:
            continue
        is_over = tokens[-1] == plan.eos_id or len(tokens) >= plan.max_tokens
        loop = find_loop(tokens) if is_over or full else None
        if not is_over and loop is None:
            continue
        cohort.is_done[row] = True
        end: End = "eos" if tokens[-1] == plan.eos_id else "length"
        if loop is not None:
            tokens, end = tokens[:loop], "loop"
        answers.append(Answer(cohort.labels[row], tuple(tokens), end))
    if full or all(cohort.is_done):
        cohort.grow()
    return answers


def choose(model: Backbone, x: Tensor, temperature: float, random: torch.Generator) -> Tensor:
    """Next tokens [R] for the residual stream [R, H]: greedy, or drawn by the Gumbel trick."""
    if not temperature:
        return model.greedy(x)
    logits = model.head(model.normed(x)).float() / temperature
    return (logits - torch.empty_like(logits).exponential_(generator=random).log()).argmax(-1)
