"""Compare decoded tokens and logits with a reference, to check the promises of the runtime.

- Lossless: the tokens must equal AR's, regardless of the drafts and of other rows in the batch.
- Sampling: the distance between drawn tokens and AR's probabilities must be explained by chance.
- Logits: the logits of this runtime are compared with those of transformers on the same weights.
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
"""Maximum number of tokens per forward pass. Longer texts are fed in pieces, as in prefill."""


def ways(max_new_tokens: int) -> list[DecodeSettings]:
    """Return settings of lossless methods that cover different drafts and masks.

    The settings include low and high τ, few and many masks, both mask layouts, and prompt lookup.
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
    """The first difference between two answers. prompt: number of the prompt.

    place: position of the first different token. expected, found: the two tokens, None if an answer
    has already ended.
    """

    prompt: int
    place: int
    expected: int | None
    found: int | None


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """The comparison of one method with AR on all prompts."""

    settings: DecodeSettings
    batch_size: int
    num_prompts: int
    num_tokens: int
    num_forwards: int
    mismatches: tuple[Mismatch, ...]


def compare_with_ar(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    expected: Sequence[RowOutput],
    on_rows: Callable[[int], None] = lambda count: None,
) -> MethodComparison:
    """Decode ``prompts`` in batches, and compare the tokens with ``expected``, AR's outputs."""
    outputs = decode_in_batches(decode, prompts, settings, batch_size, on_rows)
    differences = (
        first_difference(number, ar.tokens, output.tokens)
        for number, (ar, output) in enumerate(zip(expected, outputs, strict=True))
    )
    return MethodComparison(
        settings=settings,
        batch_size=batch_size,
        num_prompts=len(prompts),
        num_tokens=sum(len(output.tokens) for output in outputs),
        num_forwards=sum(output.num_forwards for output in outputs),
        mismatches=tuple(difference for difference in differences if difference is not None),
    )


def first_difference(number: int, expected: Sequence[int], found: Sequence[int]) -> Mismatch | None:
    for place, (token, other) in enumerate(zip_longest(expected, found)):
        if token != other:
            return Mismatch(number, place, token, other)
    return None


@dataclass(frozen=True, slots=True)
class Distance:
    """Total variation distance (0 to 1) at one position of the answers, averaged over prompts.

    - place: the position.
    - seen: distance between the drawn tokens and AR's mean probabilities.
    - by_chance: mean distance of the same number of random draws from these probabilities.
    - rare: distance that such random draws exceed once in a thousand times.
    """

    place: int
    num_draws: int
    seen: float
    by_chance: float
    rare: float

    @property
    def is_chance(self) -> bool:
        """Whether random draws reach this distance more often than once in a thousand times."""
        return self.seen <= self.rare


def shares(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Return the probabilities [N, V] with which tokens are drawn.

    logits: [N, V], with -inf for forbidden tokens.
    """
    scaled = logits.float() / temperature
    if top_p < 1.0:
        is_in_nucleus = nucleus(scaled.unsqueeze(0), torch.tensor([top_p]))[0]
        scaled = scaled.masked_fill(~is_in_nucleus, -torch.inf)
    return scaled.softmax(-1)


@dataclass(frozen=True, slots=True)
class PromptDistance:
    """The distance at one position of the answers to one prompt.

    chance: [ROUNDS], distances that result if tokens are drawn at random from AR's probabilities.
    """

    num_draws: int
    seen: float
    chance: Tensor


def prompt_distance(tokens: Tensor, chances: Tensor, seed: int) -> PromptDistance:
    """Return the distance between the shares of drawn tokens [N] and the mean probabilities.

    chances: [N, V], the probabilities of each draw. seed: seed of the random draws for comparison.
    """
    generator = torch.Generator().manual_seed(seed)
    random = torch.multinomial(chances, ROUNDS, replacement=True, generator=generator)
    mean = chances.mean(0)
    chance = torch.tensor([total_variation(drawn, mean) for drawn in random.unbind(1)])
    return PromptDistance(len(tokens), total_variation(tokens, mean), chance)


def distance(place: int, by_prompt: Sequence[PromptDistance]) -> Distance:
    """Average the distances of all prompts at one position."""
    chance = torch.stack([prompt.chance for prompt in by_prompt]).mean(0)
    return Distance(
        place=place,
        num_draws=sum(prompt.num_draws for prompt in by_prompt),
        seen=sum(prompt.seen for prompt in by_prompt) / len(by_prompt),
        by_chance=float(chance.mean()),
        rare=float(chance.quantile(RARE)),
    )


def total_variation(tokens: Tensor, chances: Tensor) -> float:
    """Return the total variation distance between the shares of tokens [N] and probabilities [V].

    This is half the sum of the absolute differences, and equals the sum of the positive ones.
    """
    observed = tokens.bincount(minlength=len(chances)) / len(tokens)
    return float((observed - chances).clamp_min(0.0).sum())


@dataclass(frozen=True, slots=True)
class LogitAgreement:
    """The comparison of two sets of logits at ``num_positions`` positions.

    - max_difference, mean_difference: absolute difference of logits.
    - top_agreement: share of positions with the same most probable token.
    - mean_divergence, max_divergence: Kullback-Leibler divergence from the reference, in nats.
    """

    num_positions: int
    max_difference: float
    mean_difference: float
    top_agreement: float
    mean_divergence: float
    max_divergence: float


def agreement(logits: Tensor, reference: Tensor) -> LogitAgreement:
    """Compare logits [N, V] with those of a reference. Raises ValueError for invalid shapes."""
    if logits.shape != reference.shape or not logits.numel():
        raise ValueError(
            f"The logits must have the same shape and not be empty, got {tuple(logits.shape)} and "
            f"{tuple(reference.shape)}."
        )
    logits, reference = logits.double(), reference.double()
    difference = (logits - reference).abs()
    log_p, reference_log_p = logits.log_softmax(-1), reference.log_softmax(-1)
    divergence = (reference_log_p.exp() * (reference_log_p - log_p)).sum(-1)
    return LogitAgreement(
        num_positions=len(logits),
        max_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        top_agreement=float((logits.argmax(-1) == reference.argmax(-1)).double().mean()),
        mean_divergence=float(divergence.mean()),
        max_divergence=float(divergence.max()),
    )


def pooled(agreements: Sequence[LogitAgreement]) -> LogitAgreement:
    """Combine several comparisons, as if all their positions had been compared at once.

    Raises ValueError if there are no comparisons.
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
    """Return the logits [N, V] of this runtime after each of ``tokens[first:]``."""
    cache = _cache_after(model, tokens[:first], len(tokens))
    return _logits(model, tokens[first:], cache)


@torch.inference_mode()
def answer_logits(
    model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]]
) -> Iterator[Tensor]:
    """Yield, for each answer, the logits [N, V] from which its N tokens are chosen.

    The prompt is prefilled only once.
    """
    *before, last = prompt
    cache = _cache_after(model, before, len(before) + max(map(len, answers)))
    for answer in answers:
        cache.cursors[0] = len(before)
        yield _logits(model, [last, *answer[:-1]], cache)


def _cache_after(model: Any, tokens: Sequence[int], capacity: int) -> Any:
    """Return a KV cache of one row that has the keys and values of ``tokens``."""
    cache = model.new_cache(1, capacity)
    for _ in _fed(model, tokens, cache):
        pass
    return cache


def _logits(model: Any, tokens: Sequence[int], cache: Any) -> Tensor:
    """Feed N tokens and return the logits [N, V] after each of them."""
    pieces = _fed(model, tokens, cache)
    return torch.cat([model.logits(hidden, slice(None))[0].float() for hidden in pieces])


def _fed(model: Any, tokens: Sequence[int], cache: Any) -> Iterator[Any]:
    """Feed ``tokens`` in pieces, and yield the hidden states of each piece."""
    for start in range(0, len(tokens), CHUNK):
        fed = torch.tensor([tokens[start : start + CHUNK]], device=model.device)
        yield model.hidden(fed, cache)
        cache.cursors[0] += fed.shape[1]


@torch.inference_mode()
def transformers_logits(model: Any, tokens: Sequence[int], first: int) -> Tensor:
    """Return the logits [N, V] of a transformers model after each of ``tokens[first:]``."""
    ids = torch.tensor([list(tokens)], device=model.device)
    logits: Tensor = model(ids, logits_to_keep=len(tokens) - first).logits[0].float()
    return logits


def greedy_difference(
    number: int, logits: Tensor, answer: Sequence[int], forbidden: Sequence[int]
) -> Mismatch | None:
    """Return the first token of ``answer`` that greedy decoding would not choose, or None.

    logits: [len(answer), V], logits from which each token of the answer is chosen. They were
    computed with the answer itself as context, so one forward pass replaces greedy decoding up to
    the first difference.
    """
    allowed = logits.clone()
    allowed[:, list(forbidden)] = -torch.inf
    return first_difference(number, allowed.argmax(-1).tolist(), answer)
