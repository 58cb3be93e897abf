"""How far the logits of this runtime lie from those of transformers for the same weights.

Tensors in, numbers out; knows no checkpoint and no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mars_runtime.lab.verification.lossless import Mismatch, first_difference

CHUNK = 32
"""Tokens of a forward: prompts are read in pieces, as when decoding."""


@dataclass(frozen=True, slots=True)
class Agreement:
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


def agreement(ours: Tensor, theirs: Tensor) -> Agreement:
    """Of logits [N, V] at the same N positions. Raises ValueError for none or for other shapes."""
    if ours.shape != theirs.shape or not ours.numel():
        raise ValueError(f"Logits of one shape are wanted, got {ours.shape} and {theirs.shape}.")
    ours, theirs = ours.double(), theirs.double()
    apart = (ours - theirs).abs()
    own, other = ours.log_softmax(-1), theirs.log_softmax(-1)
    divergence = (other.exp() * (other - own)).sum(-1)
    return Agreement(
        num_positions=len(ours),
        max_difference=float(apart.max()),
        mean_difference=float(apart.mean()),
        top_agreement=float((ours.argmax(-1) == theirs.argmax(-1)).double().mean()),
        mean_divergence=float(divergence.mean()),
        max_divergence=float(divergence.max()),
    )


def pooled(found: Sequence[Agreement]) -> Agreement:
    """As if all positions had been compared at once. Raises ValueError for nothing."""
    total = sum(one.num_positions for one in found)
    if not total:
        raise ValueError("There is nothing to pool.")

    def mean(name: str) -> float:
        return sum(float(getattr(one, name)) * one.num_positions for one in found) / total

    return Agreement(
        num_positions=total,
        max_difference=max(one.max_difference for one in found),
        mean_difference=mean("mean_difference"),
        top_agreement=mean("top_agreement"),
        mean_divergence=mean("mean_divergence"),
        max_divergence=max(one.max_divergence for one in found),
    )


@torch.inference_mode()
def runtime_logits(model: Any, tokens: Sequence[int], first: int) -> Tensor:
    """Logits [N, V] of a model of this runtime after each of ``tokens`` from place ``first`` on."""
    cache = model.new_cache(1, len(tokens))
    for _ in _fed(model, tokens[:first], cache):
        pass
    return _logits(model, tokens[first:], cache)


@torch.inference_mode()
def answer_logits(
    model: Any, prompt: Sequence[int], answers: Sequence[Sequence[int]]
) -> Iterator[Tensor]:
    """Logits [N, V] that the N tokens of each answer are chosen by; the prompt is read once."""
    first = len(prompt) - 1
    cache = model.new_cache(1, first + max(map(len, answers)))
    for _ in _fed(model, prompt[:first], cache):
        pass
    for answer in answers:
        cache.cursors[0] = first
        yield _logits(model, [prompt[first], *answer[:-1]], cache)


def _fed(model: Any, tokens: Sequence[int], cache: Any) -> Iterator[Any]:
    """Hidden states of each piece of ``tokens``, which are then in the cache."""
    for start in range(0, len(tokens), CHUNK):
        fed = torch.tensor([tokens[start : start + CHUNK]], device=model.device)
        yield model.hidden(fed, cache)
        cache.cursors[0] += fed.shape[1]


def _logits(model: Any, tokens: Sequence[int], cache: Any) -> Tensor:
    """Logits [N, V] after each of N tokens."""
    pieces = _fed(model, tokens, cache)
    return torch.cat([model.logits(hidden, slice(None))[0].float() for hidden in pieces])


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
    chosen = allowed.argmax(-1).tolist()
    return first_difference(number, chosen, answer) if chosen != list(answer) else None
