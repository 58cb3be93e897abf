"""The law of sampling, place by place: how far drawn tokens lie from the probabilities that they
were drawn with, beside how far chance alone would put them.

Tensors in, numbers out; knows no model and no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_runtime.acceptance import nucleus

ROUNDS = 1000
RARE = 0.999


@dataclass(frozen=True, slots=True)
class Distance:
    """Total variation, in 0..1, at one place of the answers, averaged over prompts.

    seen: between the tokens drawn there and the mean of the model's own probabilities. by_chance,
    rare: the mean of what as many draws from those probabilities give, and what they exceed once
    in a thousand times.
    """

    place: int
    num_draws: int
    seen: float
    by_chance: float
    rare: float

    @property
    def is_chance(self) -> bool:
        """Whether chance explains it."""
        return self.seen <= self.rare


def shares(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Probabilities [N, V] that tokens are drawn with, of logits without what cannot come out."""
    scaled = logits.float() / temperature
    if top_p < 1.0:
        kept = nucleus(scaled.unsqueeze(0), torch.tensor([top_p]))[0]
        scaled = scaled.masked_fill(~kept, -torch.inf)
    return scaled.softmax(-1)


def total_variation(tokens: Tensor, chances: Tensor) -> float:
    """Between the empirical distribution of tokens [N] and the mean of ``chances`` [N, V]."""
    return _over(tokens, chances.mean(0))


@dataclass(frozen=True, slots=True)
class Part:
    """One place of the answers to one prompt; chance: of tokens drawn anew, ROUNDS times."""

    num_draws: int
    seen: float
    chance: Tensor


def part(tokens: Tensor, chances: Tensor, seed: int) -> Part:
    """Of tokens [N] and the probabilities [N, V] that each was drawn with."""
    generator = torch.Generator().manual_seed(seed)
    again = torch.multinomial(chances, ROUNDS, replacement=True, generator=generator)
    mean = chances.mean(0)
    chance = torch.tensor([_over(each, mean) for each in again.unbind(1)])
    return Part(len(tokens), total_variation(tokens, chances), chance)


def distance(place: int, parts: Sequence[Part]) -> Distance:
    """At one place, over prompts."""
    chance = torch.stack([one.chance for one in parts]).mean(0)
    return Distance(
        place=place,
        num_draws=sum(one.num_draws for one in parts),
        seen=sum(one.seen for one in parts) / len(parts),
        by_chance=float(chance.mean()),
        rare=float(chance.quantile(RARE)),
    )


def _over(tokens: Tensor, mean: Tensor) -> float:
    seen = tokens.bincount(minlength=len(mean)) / len(tokens)
    return float((seen - mean).clamp_min(0.0).sum())  # what is over there is missing elsewhere
