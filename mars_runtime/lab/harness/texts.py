"""Encode the texts of lm-eval as token ids, and compute their log-probabilities.

lm-eval passes a conversation as one string. With a rendered chat template, text in a question could
become control tokens. Therefore this module encodes a conversation as JSON, and adds control tokens
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
"""Maximum number of tokens per row and forward pass."""
HEAD_CHUNK = 32
"""Maximum number of positions per row for which logits are in memory at a time."""


def render(turns: Sequence[Mapping[str, str]], *, is_open: bool) -> str:
    """Encode a conversation as one string. is_open: whether the answer continues the last turn."""
    pairs = [[str(turn["role"]), str(turn["content"])] for turn in turns]
    return MARK + json.dumps({"turns": pairs, "open": is_open}, ensure_ascii=False)


def encode_context(tokenizer: Tokenizer, context: str) -> list[int]:
    """Return the token ids of a context, which is plain text or an encoded conversation."""
    if not context.startswith(MARK):
        return tokenizer.encode(context)
    conversation = json.loads(context[len(MARK) :])
    turns: list[Said] = [(role, content) for role, content in conversation["turns"]]
    if not conversation["open"]:
        return tokenizer.encode_chat(turns)
    *before, (_, unfinished) = turns
    assert isinstance(unfinished, str), "turns are text"
    return [*tokenizer.encode_chat(before), *tokenizer.encode(unfinished)]


def encode_pair(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], int]:
    """Return the token ids of context and continuation, and how many of them are the context's.

    Plain text is encoded as a whole. Trailing spaces of the context belong to the continuation, as
    in lm-eval. After a conversation, or without a context, the continuation is encoded separately.
    """
    if not context or context.startswith(MARK):
        before = encode_context(tokenizer, context) if context else [tokenizer.im_end_id]
        return [*before, *tokenizer.encode(continuation)], len(before)
    stem = context.rstrip() or context
    ids = tokenizer.encode(context + continuation)
    return ids, min(len(tokenizer.encode(stem)), len(ids) - 1)


def shortened(ids: Sequence[int], max_tokens: int) -> list[int]:
    """Return the last ``max_tokens`` of the token ids."""
    return list(ids[-max_tokens:])


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of a text. log_probability: natural logarithm of the probability of its tokens.

    is_greedy: whether every token is the most probable one.
    """

    log_probability: float
    is_greedy: bool


def score_all(
    model: Any, texts: Sequence[tuple[Sequence[int], int]], batch_size: int
) -> Iterator[tuple[int, Scored]]:
    """Yield (index, score) of each text.

    texts: pairs (tokens, position of the first token to score, at least 1).
    """
    for batch in by_length([tokens for tokens, _ in texts], batch_size):
        yield from zip(batch, _score(model, [texts[number] for number in batch]), strict=True)


@torch.inference_mode()
def _score(model: Any, texts: Sequence[tuple[Sequence[int], int]]) -> list[Scored]:
    """Score a batch of texts. Short rows are padded with their last token, not with masks."""
    longest = max(len(tokens) for tokens, _ in texts)
    rows = [[*tokens, *[tokens[-1]] * (longest - len(tokens))] for tokens, _ in texts]
    ids = torch.tensor(rows, device=model.device)
    cache = model.new_cache(len(texts), longest)
    sums, greedy = [0.0] * len(texts), [True] * len(texts)
    for start in range(0, longest - 1, CHUNK):
        fed = ids[:, start : min(start + CHUNK, longest - 1)]
        hidden = model.hidden(fed, cache)
        for first, logits in _logits(model, hidden, fed.shape[1]):
            predicted = start + first + 1  # position of the token that the first logits predict
            for row, (tokens, scored_from) in enumerate(texts):
                begin = max(scored_from, predicted)
                end = min(len(tokens), predicted + logits.shape[1])
                if begin < end:
                    row_logits = logits[row, begin - predicted : end - predicted]
                    total, is_greedy = _of_row(row_logits, ids[row, begin:end])
                    sums[row] += total
                    greedy[row] &= is_greedy
        for row in range(len(texts)):
            cache.cursors[row] += fed.shape[1]
    return [Scored(*pair) for pair in zip(sums, greedy, strict=True)]


def _logits(model: Any, hidden: Any, num_positions: int) -> Iterator[tuple[int, Tensor]]:
    for first in range(0, num_positions, HEAD_CHUNK):
        chunk = slice(first, min(first + HEAD_CHUNK, num_positions))
        yield first, model.logits(hidden, chunk).float()


def _of_row(logits: Tensor, tokens: Tensor) -> tuple[float, bool]:
    """Return the log-probability of N tokens, and whether each is the most probable token.

    logits: [N, V].
    """
    chosen = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1))
    return float(chosen.sum()), bool((logits.argmax(-1) == tokens).all())
