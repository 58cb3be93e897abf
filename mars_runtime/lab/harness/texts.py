"""Texts of lm-eval as token ids, and their log-probabilities by teacher forcing, without masks.

lm-eval passes a conversation as one string. In a rendered template the words of a question could
become control tokens, so here the string is the conversation as JSON, and control tokens are added
by id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mars_runtime.lab.evaluation.measure import by_length
from mars_runtime.text import Said, Tokenizer

MARK = "conversation:"
"""Prefix of a string that contains a conversation."""
CHUNK = 256
"""Tokens per row and forward pass."""
HEAD_CHUNK = 32
"""Positions with logits in memory at once."""


def render(turns: Sequence[Mapping[str, str]], *, is_open: bool) -> str:
    """Return a conversation as one string. is_open: the answer continues its last turn."""
    said = [[str(turn["role"]), str(turn["content"])] for turn in turns]
    return MARK + json.dumps({"turns": said, "open": is_open}, ensure_ascii=False)


def encode_context(tokenizer: Tokenizer, context: str) -> list[int]:
    """Return the ids of a context, plain text or a conversation."""
    if not context.startswith(MARK):
        return tokenizer.encode(context)
    conversation = json.loads(context[len(MARK) :])
    turns: list[Said] = [(role, content) for role, content in conversation["turns"]]
    if not conversation["open"]:
        return tokenizer.encode_chat(turns)
    *before, (_, begun) = turns
    assert isinstance(begun, str), "turns are text"
    return [*tokenizer.encode_chat(before), *tokenizer.encode(begun)]


def encode_pair(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], int]:
    """Return the ids of both together, and how many of them are context.

    Plain text is encoded in one piece and split where the context ends; its trailing spaces belong
    to the continuation, as in lm-eval. After a conversation, or without a context, the continuation
    is encoded separately.
    """
    if not context or context.startswith(MARK):
        before = encode_context(tokenizer, context) if context else [tokenizer.im_end_id]
        return [*before, *tokenizer.encode(continuation)], len(before)
    stem = context.rstrip() or context
    whole = tokenizer.encode(context + continuation)
    return whole, min(len(tokenizer.encode(stem)), len(whole) - 1)


def shortened(ids: Sequence[int], room: int) -> list[int]:
    """Return the last ``room`` ids."""
    return list(ids[-room:])


@dataclass(frozen=True, slots=True)
class Scored:
    """A score. log_probability: in nats; is_greedy: whether each token is the most probable."""

    log_probability: float
    is_greedy: bool


def score_all(
    model: Any, texts: Sequence[tuple[Sequence[int], int]], batch_size: int
) -> Iterator[tuple[int, Scored]]:
    """Yield the number and score of each text (tokens, first scored position, at least 1)."""
    for batch in by_length([tokens for tokens, _ in texts], batch_size):
        yield from zip(batch, _score(model, [texts[number] for number in batch]), strict=True)


@torch.inference_mode()
def _score(model: Any, texts: Sequence[tuple[Sequence[int], int]]) -> list[Scored]:
    """Score a batch. Rows are padded with their last token, which is never a mask."""
    longest = max(len(tokens) for tokens, _ in texts)
    rows = [[*tokens, *[tokens[-1]] * (longest - len(tokens))] for tokens, _ in texts]
    ids = torch.tensor(rows, device=model.device)
    cache = model.new_cache(len(texts), longest)
    sums, greedy = [0.0] * len(texts), [True] * len(texts)
    for start in range(0, longest - 1, CHUNK):
        fed = ids[:, start : min(start + CHUNK, longest - 1)]
        hidden = model.hidden(fed, cache)
        for first, logits in _logits(model, hidden, fed.shape[1]):
            place = start + first + 1  # of the token that the first of these logits predicts
            for row, (tokens, scored_from) in enumerate(texts):
                begin, end = max(scored_from, place), min(len(tokens), place + logits.shape[1])
                if begin < end:
                    row_logits = logits[row, begin - place : end - place]
                    total, is_greedy = _of_row(row_logits, ids[row, begin:end])
                    sums[row] += total
                    greedy[row] &= is_greedy
        for row in range(len(texts)):
            cache.cursors[row] += fed.shape[1]
    return [Scored(*pair) for pair in zip(sums, greedy, strict=True)]


def _logits(model: Any, hidden: Any, num_places: int) -> Iterator[tuple[int, Tensor]]:
    for first in range(0, num_places, HEAD_CHUNK):
        yield first, model.logits(hidden, slice(first, min(first + HEAD_CHUNK, num_places))).float()


def _of_row(logits: Tensor, tokens: Tensor) -> tuple[float, bool]:
    """Return the score of N tokens from their logits [N, V]."""
    chosen = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))
    return float(chosen.sum()), bool((logits.argmax(-1) == tokens).all())
