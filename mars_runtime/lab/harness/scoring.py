"""How likely given texts are to the model itself: teacher-forced, without masks, in batches.

Tokens in, log-probabilities out; knows no text and no lm-eval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 256
"""Tokens of a row that one forward reads."""
HEAD_CHUNK = 32
"""Places whose logits are in memory at once."""


@dataclass(frozen=True, slots=True)
class Scored:
    """log_probability: of the tokens that were scored, in nats; is_greedy: whether each of them is
    the likeliest."""

    log_probability: float
    is_greedy: bool


def score_all(
    model: Any, texts: Sequence[tuple[Sequence[int], int]], batch_size: int
) -> Iterator[tuple[int, Scored]]:
    """Number and score of each (tokens, first place that is scored, at least 1), batch by batch;
    those of like length share one."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number][0]))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        yield from zip(batch, _score(model, [texts[number] for number in batch]), strict=True)


@torch.inference_mode()
def _score(model: Any, texts: Sequence[tuple[Sequence[int], int]]) -> list[Scored]:
    """Rows are filled up behind their end, which a causal model does not notice, with their own
    last token, which is never a mask."""
    longest = max(len(tokens) for tokens, _ in texts)
    rows = [[*tokens, *[tokens[-1]] * (longest - len(tokens))] for tokens, _ in texts]
    ids = torch.tensor(rows, device=model.device)
    cache = model.new_cache(len(texts), longest)
    sums, greedy = [0.0] * len(texts), [True] * len(texts)
    for start in range(0, longest - 1, CHUNK):
        fed = ids[:, start : min(start + CHUNK, longest - 1)]
        hidden = model.hidden(fed, cache)
        for first, logits in _logits(model, hidden, fed.shape[1]):
            place = start + first + 1  # of the token that the first of these predicts
            for row, (tokens, scored_from) in enumerate(texts):
                begin, end = max(scored_from, place), min(len(tokens), place + logits.shape[1])
                if begin < end:
                    own = logits[row, begin - place : end - place]
                    total, is_greedy = _of_row(own, ids[row, begin:end])
                    sums[row] += total
                    greedy[row] &= is_greedy
        for row in range(len(texts)):
            cache.cursors[row] += fed.shape[1]
    return [Scored(*pair) for pair in zip(sums, greedy, strict=True)]


def _logits(model: Any, hidden: Any, num_places: int) -> Iterator[tuple[int, Tensor]]:
    for first in range(0, num_places, HEAD_CHUNK):
        yield first, model.logits(hidden, slice(first, min(first + HEAD_CHUNK, num_places))).float()


def _of_row(logits: Tensor, tokens: Tensor) -> tuple[float, bool]:
    """Logits [N, V] before each of N tokens."""
    chosen = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))
    return float(chosen.sum()), bool((logits.argmax(-1) == tokens).all())
