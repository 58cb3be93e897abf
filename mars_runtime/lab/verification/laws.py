"""The laws of lossless text and of sampling, and how far logits lie apart: what a promise is held
against.

Lossless: the tokens are AR's, whatever is drafted and whoever shares the batch. Sampling: drawn
tokens lie as far from the probabilities that they were drawn with as chance puts them. Logits: this
runtime's beside those of transformers for the same weights. Knows decoding as a function from
prompts and settings to events; knows no checkpoint and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from mars_runtime.acceptance import nucleus
from mars_runtime.lab.evaluation.measure import Decode, RowOutput, decode_in_batches
from mars_runtime.settings import AUTO, DecodeSettings

BATCH_SIZES = (1, 4)
ROUNDS = 1000
RARE = 0.999
CHUNK = 32
"""Tokens of a forward: prompts are read in pieces, as when decoding."""


def ways(max_new_tokens: int) -> list[DecodeSettings]:
    """Drafts and masks of many shapes: thresholds low and high, few masks and many, after the last
    token or every one, and text looked up."""
    plain = DecodeSettings(lossless=True, max_new_tokens=max_new_tokens)
    every = replace(plain, groups="every")
    return [
        replace(plain, block_size=2, tau=0.5),
        replace(plain, block_size=8, tau=0.0),
        replace(every, block_size=4, tau=0.0),
        replace(every, block_size=6, tau=0.3, lookup=True),
        replace(every, block_size=AUTO, tau=0.0, lookup=True),
    ]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A prompt, by its number, whose tokens first differ from AR's at ``place``; None where one
    ends."""

    prompt: int
    place: int
    expected: int | None
    found: int | None


@dataclass(frozen=True, slots=True)
class HeldWay:
    """One way of decoding held against AR alone, over all prompts."""

    settings: DecodeSettings
    batch_size: int
    num_prompts: int
    num_tokens: int
    num_forwards: int
    mismatches: tuple[Mismatch, ...]


def hold(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    expected: Sequence[RowOutput],
    on_rows: Callable[[int], None] = lambda count: None,
) -> HeldWay:
    """Decode ``prompts`` in batches and compare token by token."""
    found = decode_in_batches(decode, prompts, settings, batch_size, on_rows)
    differences = (
        first_difference(number, ar.tokens, own.tokens)
        for number, (ar, own) in enumerate(zip(expected, found, strict=True))
    )
    return HeldWay(
        settings=settings,
        batch_size=batch_size,
        num_prompts=len(prompts),
        num_tokens=sum(len(one.tokens) for one in found),
        num_forwards=sum(one.num_forwards for one in found),
        mismatches=tuple(one for one in differences if one is not None),
    )


def first_difference(number: int, expected: Sequence[int], found: Sequence[int]) -> Mismatch | None:
    """Where two texts first differ; None where they are the same."""
    for place, (one, other) in enumerate(zip_longest(expected, found)):
        if one != other:
            return Mismatch(number, place, one, other)
    return None


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


@dataclass(frozen=True, slots=True)
class PromptDistance:
    """One place of the answers to one prompt; chance: of tokens drawn anew, ROUNDS times."""

    num_draws: int
    seen: float
    chance: Tensor


def prompt_distance(tokens: Tensor, chances: Tensor, seed: int) -> PromptDistance:
    """Of tokens [N] and the probabilities [N, V] that each was drawn with."""
    generator = torch.Generator().manual_seed(seed)
    again = torch.multinomial(chances, ROUNDS, replacement=True, generator=generator)
    mean = chances.mean(0)
    chance = torch.tensor([total_variation(each, mean) for each in again.unbind(1)])
    return PromptDistance(len(tokens), total_variation(tokens, mean), chance)


def distance(place: int, by_prompt: Sequence[PromptDistance]) -> Distance:
    """At one place, over prompts."""
    chance = torch.stack([one.chance for one in by_prompt]).mean(0)
    return Distance(
        place=place,
        num_draws=sum(one.num_draws for one in by_prompt),
        seen=sum(one.seen for one in by_prompt) / len(by_prompt),
        by_chance=float(chance.mean()),
        rare=float(chance.quantile(RARE)),
    )


def total_variation(tokens: Tensor, chances: Tensor) -> float:
    """Between the empirical distribution of tokens [N] and probabilities [V]."""
    seen = tokens.bincount(minlength=len(chances)) / len(tokens)
    return float((seen - chances).clamp_min(0.0).sum())  # what is over there is missing elsewhere


@dataclass(frozen=True, slots=True)
class LogitAgreement:
    """Two sets of logits over ``num_positions``.

    max_difference, mean_difference: of absolute values, in logits. top_agreement: share of
    positions with the same likeliest token. mean_divergence, max_divergence: Kullback-Leibler from
    theirs to ours, in nats.
    """

    num_positions: int
    max_difference: float
    mean_difference: float
    top_agreement: float
    mean_divergence: float
    max_divergence: float


def agreement(ours: Tensor, theirs: Tensor) -> LogitAgreement:
    """Of logits [N, V] at the same N positions. Raises ValueError for none or for other shapes."""
    if ours.shape != theirs.shape or not ours.numel():
        raise ValueError(f"Logits of one shape are wanted, got {ours.shape} and {theirs.shape}.")
    ours, theirs = ours.double(), theirs.double()
    apart = (ours - theirs).abs()
    own, other = ours.log_softmax(-1), theirs.log_softmax(-1)
    divergence = (other.exp() * (other - own)).sum(-1)
    return LogitAgreement(
        num_positions=len(ours),
        max_difference=float(apart.max()),
        mean_difference=float(apart.mean()),
        top_agreement=float((ours.argmax(-1) == theirs.argmax(-1)).double().mean()),
        mean_divergence=float(divergence.mean()),
        max_divergence=float(divergence.max()),
    )


def pooled(found: Sequence[LogitAgreement]) -> LogitAgreement:
    """As if all positions had been compared at once. Raises ValueError for nothing."""
    total = sum(one.num_positions for one in found)
    if not total:
        raise ValueError("There is nothing to pool.")

    def of_all(name: str) -> float:
        values = [float(getattr(one, name)) for one in found]
        if name.startswith("max_"):
            return max(values)
        weighted = (value * one.num_positions for value, one in zip(values, found, strict=True))
        return sum(weighted) / total

    names = [field.name for field in fields(LogitAgreement)[1:]]
    return LogitAgreement(total, *map(of_all, names))


@torch.inference_mode()
def runtime_logits(model: Any, tokens: Sequence[int], first: int) -> Tensor:
    """Logits [N, V] of a model of this runtime after each of ``tokens`` from place ``first`` on."""
    cache = _cache_after(model, tokens[:first], len(tokens))
    return _logits(model, tokens[first:], cache)


@torch.inference_mode()
def answer_logits(
    model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]]
) -> Iterator[Tensor]:
    """Logits [N, V] that the N tokens of each answer are chosen by; the prompt is read once."""
    *before, last = prompt
    cache = _cache_after(model, before, len(before) + max(map(len, answers)))
    for answer in answers:
        cache.cursors[0] = len(before)
        yield _logits(model, [last, *answer[:-1]], cache)


def _cache_after(model: Any, tokens: Sequence[int], capacity: int) -> Any:
    """The cache of one row that has read ``tokens``."""
    cache = model.new_cache(1, capacity)
    for _ in _fed(model, tokens, cache):
        pass
    return cache


def _logits(model: Any, tokens: Sequence[int], cache: Any) -> Tensor:
    """Logits [N, V] after each of N tokens."""
    pieces = _fed(model, tokens, cache)
    return torch.cat([model.logits(hidden, slice(None))[0].float() for hidden in pieces])


def _fed(model: Any, tokens: Sequence[int], cache: Any) -> Iterator[Any]:
    """Hidden states of each piece of ``tokens``, which are then in the cache."""
    for start in range(0, len(tokens), CHUNK):
        fed = torch.tensor([tokens[start : start + CHUNK]], device=model.device)
        yield model.hidden(fed, cache)
        cache.cursors[0] += fed.shape[1]


@torch.inference_mode()
def transformers_logits(model: Any, tokens: Sequence[int], first: int) -> Tensor:
    """The same of a transformers model, in one forward."""
    ids = torch.tensor([list(tokens)], device=model.device)
    found: Tensor = model(ids, logits_to_keep=len(tokens) - first).logits[0].float()
    return found


def greedy_difference(
    number: int, logits: Tensor, answer: Sequence[int], forbidden: Sequence[int]
) -> Mismatch | None:
    """Where ``answer`` is not what these logits [len(answer), V] choose greedily, None if nowhere.

    Logits are those after the tokens before each place of the answer, so up to the first mismatch
    this is greedy decoding, without its many forwards.
    """
    allowed = logits.clone()
    allowed[:, list(forbidden)] = -torch.inf
    return first_difference(number, allowed.argmax(-1).tolist(), answer)
