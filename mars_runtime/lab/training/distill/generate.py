"""Answers of the base model to many prompts at once: cohorts of rows come and go, the batch stays
full.

Prompts come in and answers go out as token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mars_runtime.lab.training.backbone import Backbone
from mars_runtime.loops import find_loop

End = Literal["eos", "length", "loop"]
WINDOW = 512
"""Prompts sorted by length together, so that those of a cohort are about equally long."""
GROWTH = 32
"""Slots that a cohort's cache grows by; it has a multiple of them, which products like."""


@dataclass(frozen=True, slots=True)
class Completion:
    """index: of the prompt; ids end in EOS where ``end`` is "eos"."""

    index: int
    ids: tuple[int, ...]
    end: End


@dataclass(frozen=True, slots=True)
class GenerationConfig:
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
def generate(
    model: Backbone, prompts: Sequence[list[int]], config: GenerationConfig
) -> Iterator[list[Completion]]:
    """Decode every prompt; yields after each forward the answers that ended with it."""
    random = torch.Generator(torch.get_default_device()).manual_seed(config.seed)

    def choose(x: Tensor) -> Tensor:
        """Next tokens [R] for the residual stream [R, H]: greedy, or drawn by the Gumbel trick."""
        if not config.temperature:
            return model.greedy(x)
        logits = model.head(model.normed(x)).float() / config.temperature
        return (logits - torch.empty_like(logits).exponential_(generator=random).log()).argmax(-1)

    waiting = cohorts_of([len(prompt) for prompt in prompts], config.cohort)[::-1]
    running: list[Cohort] = []
    while waiting or running:
        while waiting and sum(c.num_rows for c in running) + config.cohort <= config.rows:
            labels = waiting.pop()
            cohort = Cohort([prompts[i] for i in labels], labels)
            cohort.advance(choose(cohort.prefill(model)).tolist())
            running.append(cohort)
        _step(model, running, choose)
        yield [answer for cohort in running for answer in _ended(cohort, config)]
        running = [cohort for cohort in running if cohort.num_rows]


def _step(model: Backbone, running: list[Cohort], choose: Callable[[Tensor], Tensor]) -> None:
    """One forward for the rows of all cohorts."""
    sizes = [cohort.num_rows for cohort in running]

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(running, *(torch.split(t, sizes) for t in (q, k, v)), strict=True)
        return torch.cat([cohort.attend(layer, *part) for cohort, *part in parts])

    positions = torch.cat([cohort.positions() for cohort in running])
    x = model.embed(torch.cat([cohort.last for cohort in running]))
    chosen = torch.split(choose(model.hidden(x, positions, attend)), sizes)
    for cohort, tokens in zip(running, chosen, strict=True):
        cohort.step_done()
        cohort.advance(tokens.tolist())


def _ended(cohort: Cohort, config: GenerationConfig) -> list[Completion]:
    """Answers that are over, each once. Loops are looked for when the cache has to grow."""
    full = cohort.is_full()
    answers = []
    for row, tokens in enumerate(cohort.tokens):
        if cohort.is_done[row]:
            continue
        is_over = tokens[-1] == config.eos_id or len(tokens) >= config.max_tokens
        loop = find_loop(tokens, cohort.num_looked) if is_over or full else None
        if not is_over and loop is None:
            continue
        cohort.is_done[row] = True
        end: End = "eos" if tokens[-1] == config.eos_id else "length"
        if loop is not None:
            tokens, end = tokens[: loop.kept], "loop"
        answers.append(Completion(cohort.labels[row], tuple(tokens), end))
    if full or all(cohort.is_done):
        cohort.grow()
    return answers


class Cohort:
    """Rows that were started together and so share one length, left-padded to one width: their KV
    cache is dense and attention is two batched products. It grows by ``GROWTH`` slots at a time and
    lets go of finished rows when it does, so that nothing is read for them for long.

    keys, values: per layer [R, kv heads, S, d], S >= length; tokens: per row, what was generated so
    far; num_looked: how many of them a loop was looked for in; ``last``: the tokens the next
    forward reads.
    """

    def __init__(self, prompts: list[list[int]], labels: list[int]) -> None:
        self.labels = labels
        self.length = -(-max(map(len, prompts)) // GROWTH) * GROWTH
        self.pads = torch.tensor([self.length - len(prompt) for prompt in prompts])
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self.num_looked = 0
        self.is_done = [False] * len(prompts)
        self.last = torch.tensor([[0] * (self.length - len(p)) + p for p in prompts])
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.bias = torch.empty(0)

    @property
    def num_rows(self) -> int:
        """Rows it holds, finished ones that were not let go yet included."""
        return len(self.labels)

    def positions(self) -> Tensor:
        """Positions [R] of the tokens in ``last``."""
        return self.length - self.pads

    def prefill(self, model: Backbone) -> Tensor:
        """Read the prompts; returns the residual stream [R, H] of their last tokens."""
        ids, rows, width = self.last, self.num_rows, self.length
        slots = torch.arange(width)
        positions = (slots - self.pads[:, None]).clamp(min=0)
        unseen = (slots[None, :] > slots[:, None]) | (slots < self.pads[:, None])[:, None, :]
        bias = torch.zeros(rows, width, width).masked_fill_(unseen, -1e9)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            k, v = (t.view(rows, width, *t.shape[1:]).transpose(1, 2) for t in (k, v))
            self.keys.append(grown(k))
            self.values.append(grown(v))
            q = q.view(rows, width, *q.shape[1:]).permute(0, 2, 3, 1, 4)  # R, kv, G, T, d
            shape = q.shape
            q = q.reshape(rows, shape[1], -1, shape[-1])
            every = bias.repeat(1, shape[2], 1)[:, None]
            out = softmax_product(q, k.contiguous(), v.contiguous(), every)
            return out.view(shape).permute(0, 3, 1, 2, 4).reshape(rows * width, -1)

        x = model.hidden(model.embed(ids.flatten()), positions.flatten(), attend)
        self._mask()
        return x.view(rows, width, -1)[:, -1]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """One new token per row: q [R, kv heads, group, d], k, v [R, kv heads, d] -> [R, H]."""
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, self.length] = k
        values[:, :, self.length] = v
        return softmax_product(q, keys, values, self.bias).reshape(len(q), -1)

    def advance(self, tokens: list[int]) -> None:
        """The forward that read ``last`` is over: one slot more, and new tokens to read."""
        for row, token in enumerate(tokens):
            if not self.is_done[row]:
                self.tokens[row].append(token)
        self.last = torch.tensor(tokens)

    def step_done(self) -> None:
        """Count the slot that the forward wrote, and make the next one visible."""
        self.length += 1
        if self.length < self.keys[0].shape[2]:
            self.bias[..., self.length] = 0.0

    def is_full(self) -> bool:
        """Say whether the next token has no slot."""
        return self.length >= self.keys[0].shape[2]

    def grow(self) -> None:
        """Let go of finished rows and add ``GROWTH`` slots."""
        kept = [row for row, done in enumerate(self.is_done) if not done]
        index = torch.tensor(kept, dtype=torch.long)
        for layer in range(len(self.keys)):
            self.keys[layer] = grown(self.keys[layer][index])
            self.values[layer] = grown(self.values[layer][index])
        self.labels = [self.labels[row] for row in kept]
        self.tokens = [self.tokens[row] for row in kept]
        self.num_looked = max(map(len, self.tokens), default=0)
        self.is_done = [False] * len(kept)
        self.pads, self.last = self.pads[index], self.last[index]
        self._mask()

    def _mask(self) -> None:
        slots = torch.arange(self.keys[0].shape[2])
        unseen = (slots < self.pads[:, None]) | (slots > self.length)
        self.bias = torch.zeros(unseen.shape).masked_fill_(unseen, -1e9)[:, None, None]


def grown(cache: Tensor) -> Tensor:
    """[R, heads, S, d] with ``GROWTH`` empty slots more, dense."""
    rows, heads, _, dim = cache.shape
    return torch.cat([cache, cache.new_zeros(rows, heads, GROWTH, dim)], 2)


def softmax_product(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention in plain products: q [R, kv heads, M, d], k, v [R, kv heads, S, d]; ``bias``
    broadcasts to [R, kv heads, M, S], float32. The CPU's fused kernel is ten times as slow for
    the one or three queries a row that decoding has."""
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5 + bias
    return torch.softmax(scores, -1).to(v.dtype) @ v
