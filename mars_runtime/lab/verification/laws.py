"""The laws of lossless text and of sampling, and distances between logits: what promises are
checked against.

Lossless: the tokens are AR's, independent of drafts and of the other rows of the batch. Sampling:
drawn tokens are as far from the probabilities that they were drawn with as chance explains. Logits:
this runtime's compared with those of transformers for the same weights. Decoding is passed in as a
function from prompts and settings to events.
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
"""Tokens per forward pass: prompts are processed in pieces, as in decoding."""


def ways(max_new_tokens: int) -> list[DecodeSettings]:
    """Return settings with drafts and masks of many shapes: low and high thresholds, few and many
    masks, groups after the last token or after every token, and prompt lookup.
    """
    plain = DecodeSettings(lossless=True, max_new_tokens=max_new_tokens)
    every = replace(plain, mask_layout="every")
    return [
        replace(plain, block_size=2, tau=0.5),
        replace(plain, block_size=8, tau=0.0),
        replace(every, block_size=4, tau=0.0),
        replace(every, block_size=6, tau=0.3, lookup=True),
        replace(every, block_size=AUTO, tau=0.0, lookup=True),
    ]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A prompt, by its number, with tokens that first differ from AR's at ``place``; a token is
    None if its text has ended there.
    """

    prompt: int
    place: int
    expected: int | None
    found: int | None


@dataclass(frozen=True, slots=True)
class HeldWay:
    """One method compared with AR, over all prompts."""

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
    """Decode ``prompts`` in batches and compare with ``expected`` token by token."""
    outputs = decode_in_batches(decode, prompts, settings, batch_size, on_rows)
    differences = (
        first_difference(number, ar.tokens, output.tokens)
        for number, (ar, output) in enumerate(zip(expected, outputs, strict=True))
    )
    return HeldWay(
        settings=settings,
        batch_size=batch_size,
        num_prompts=len(prompts),
        num_tokens=sum(len(output.tokens) for output in outputs),
        num_forwards=sum(output.num_forwards for output in outputs),
        mismatches=tuple(difference for difference in differences if difference is not None),
    )


def first_difference(number: int, expected: Sequence[int], found: Sequence[int]) -> Mismatch | None:
    """Return where two texts first differ; None if they are the same."""
    for place, (one, other) in enumerate(zip_longest(expected, found)):
        if one != other:
            return Mismatch(number, place, one, other)
    return None


@dataclass(frozen=True, slots=True)
class Distance:
    """Total variation, in 0..1, at one position of the answers, averaged over prompts.

    seen: between the tokens drawn there and the mean of the model's own probabilities. by_chance,
    rare: for the same number of random draws from those probabilities, the mean and the value
    exceeded once in a thousand times.
    """

    place: int
    num_draws: int
    seen: float
    by_chance: float
    rare: float

    @property
    def is_chance(self) -> bool:
        """Whether chance explains the distance."""
        return self.seen <= self.rare


def shares(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Return the probabilities [N, V] that tokens are drawn with, from logits without forbidden
    tokens.
    """
    scaled = logits.float() / temperature
    if top_p < 1.0:
        is_in_nucleus = nucleus(scaled.unsqueeze(0), torch.tensor([top_p]))[0]
        scaled = scaled.masked_fill(~is_in_nucleus, -torch.inf)
    return scaled.softmax(-1)


@dataclass(frozen=True, slots=True)
class PromptDistance:
    """Distance at one position of the answers to one prompt. chance: distances of random draws,
    ROUNDS of them.
    """

    num_draws: int
    seen: float
    chance: Tensor


def prompt_distance(tokens: Tensor, chances: Tensor, seed: int) -> PromptDistance:
    """Return the distance of tokens [N] from the probabilities [N, V] that each was drawn with."""
    generator = torch.Generator().manual_seed(seed)
    again = torch.multinomial(chances, ROUNDS, replacement=True, generator=generator)
    mean = chances.mean(0)
    chance = torch.tensor([total_variation(drawn, mean) for drawn in again.unbind(1)])
    return PromptDistance(len(tokens), total_variation(tokens, mean), chance)


def distance(place: int, by_prompt: Sequence[PromptDistance]) -> Distance:
    """Return the distance at one position, averaged over prompts."""
    chance = torch.stack([prompt.chance for prompt in by_prompt]).mean(0)
    return Distance(
        place=place,
        num_draws=sum(prompt.num_draws for prompt in by_prompt),
        seen=sum(prompt.seen for prompt in by_prompt) / len(by_prompt),
        by_chance=float(chance.mean()),
        rare=float(chance.quantile(RARE)),
    )


def total_variation(tokens: Tensor, chances: Tensor) -> float:
    """Return the total variation between the empirical distribution of tokens [N] and probabilities
    [V].
    """
    seen = tokens.bincount(minlength=len(chances)) / len(tokens)
    # every surplus is a deficit elsewhere, so half the sum suffices
    return float((seen - chances).clamp_min(0.0).sum())


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
    """Compare logits [N, V] at the same N positions. Raises ValueError if there are none or the
    shapes differ.
    """
    if ours.shape != theirs.shape or not ours.numel():
        raise ValueError(
            f"The logits must have the same shape, got {ours.shape} and {theirs.shape}."
        )
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


def pooled(agreements: Sequence[LogitAgreement]) -> LogitAgreement:
    """Pool several comparisons as if all positions had been compared at once. Raises ValueError for
    none.
    """
    total = sum(agreement.num_positions for agreement in agreements)
    if not total:
        raise ValueError("There are no comparisons to pool.")

    def of_all(name: str) -> float:
        values = [float(getattr(agreement, name)) for agreement in agreements]
        if name.startswith("max_"):
            return max(values)
        weighted = (
            value * agreement.num_positions
            for value, agreement in zip(values, agreements, strict=True)
        )
        return sum(weighted) / total

    names = [field.name for field in fields(LogitAgreement)[1:]]
    return LogitAgreement(total, *map(of_all, names))


@torch.inference_mode()
def runtime_logits(model: Any, tokens: Sequence[int], first: int) -> Tensor:
    """Return this runtime's logits [N, V] after each of ``tokens`` from index ``first`` on."""
    cache = _cache_after(model, tokens[:first], len(tokens))
    return _logits(model, tokens[first:], cache)


@torch.inference_mode()
def answer_logits(
    model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]]
) -> Iterator[Tensor]:
    """Return the logits [N, V] from which the N tokens of each answer are chosen; the prompt is
    prefilled once.
    """
    *before, last = prompt
    cache = _cache_after(model, before, len(before) + max(map(len, answers)))
    for answer in answers:
        cache.cursors[0] = len(before)
        yield _logits(model, [last, *answer[:-1]], cache)


def _cache_after(model: Any, tokens: Sequence[int], capacity: int) -> Any:
    """Return a cache of one row that holds ``tokens``."""
    cache = model.new_cache(1, capacity)
    for _ in _fed(model, tokens, cache):
        pass
    return cache


def _logits(model: Any, tokens: Sequence[int], cache: Any) -> Tensor:
    """Return the logits [N, V] after each of N tokens."""
    pieces = _fed(model, tokens, cache)
    return torch.cat([model.logits(hidden, slice(None))[0].float() for hidden in pieces])


def _fed(model: Any, tokens: Sequence[int], cache: Any) -> Iterator[Any]:
    """Yield the hidden states of each piece of ``tokens``, which are then in the cache."""
    for start in range(0, len(tokens), CHUNK):
        fed = torch.tensor([tokens[start : start + CHUNK]], device=model.device)
        yield model.hidden(fed, cache)
        cache.cursors[0] += fed.shape[1]


@torch.inference_mode()
def transformers_logits(model: Any, tokens: Sequence[int], first: int) -> Tensor:
    """Return a transformers model's logits [N, V] after each of ``tokens`` from ``first`` on, in
    one forward pass.
    """
    ids = torch.tensor([list(tokens)], device=model.device)
    logits: Tensor = model(ids, logits_to_keep=len(tokens) - first).logits[0].float()
    return logits


def greedy_difference(
    number: int, logits: Tensor, answer: Sequence[int], forbidden: Sequence[int]
) -> Mismatch | None:
    """Return where ``answer`` is not what the logits [len(answer), V] choose greedily, None if
    nowhere.

    The logits are those after the tokens before each position of the answer, so up to the first
    mismatch this equals greedy decoding without its many forward passes.
    """
    allowed = logits.clone()
    allowed[:, list(forbidden)] = -torch.inf
    return first_difference(number, allowed.argmax(-1).tolist(), answer)
