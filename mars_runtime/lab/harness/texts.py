"""Texts as lm-eval hands them over: as token ids, plain or a conversation, and how likely they are
to the model itself, teacher-forced, without masks, in batches.

lm-eval renders a conversation to one string before a model sees it. A rendered template would let
the words of a question become control tokens, so here the string is the conversation itself as
JSON, and control tokens are put in by id. Knows no lm-eval.
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
"""What a string that holds a conversation begins with."""
CHUNK = 256
"""Tokens of a row that one forward reads."""
HEAD_CHUNK = 32
"""Places whose logits are in memory at once."""


def render(turns: Sequence[Mapping[str, str]], *, is_open: bool) -> str:
    """A conversation as one string; ``is_open``: its last turn is to be gone on with."""
    said = [[str(turn["role"]), str(turn["content"])] for turn in turns]
    return MARK + json.dumps({"turns": said, "open": is_open}, ensure_ascii=False)


def encode_context(tokenizer: Tokenizer, context: str) -> list[int]:
    """Ids of what lm-eval calls a context."""
    if not context.startswith(MARK):
        return tokenizer.encode(context)
    told = json.loads(context[len(MARK) :])
    turns: list[Said] = [(role, content) for role, content in told["turns"]]
    if not told["open"]:
        return tokenizer.encode_chat(turns)
    *before, (_, begun) = turns
    assert isinstance(begun, str), "turns are text"
    return [*tokenizer.encode_chat(before), *tokenizer.encode(begun)]


def encode_pair(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], int]:
    """Ids of both together, and how many of them are context.

    Plain text is encoded in one piece and cut where the context ends, spaces at its end counted to
    the continuation, as lm-eval does for every model; after a conversation, or nothing, the
    continuation begins anew.
    """
    if not context or context.startswith(MARK):
        before = encode_context(tokenizer, context) if context else [tokenizer.im_end_id]
        return [*before, *tokenizer.encode(continuation)], len(before)
    stem = context.rstrip() or context
    whole = tokenizer.encode(context + continuation)
    return whole, min(len(tokenizer.encode(stem)), len(whole) - 1)


def shortened(ids: Sequence[int], room: int) -> list[int]:
    """The last ``room`` ids: what does not fit is left out at the beginning."""
    return list(ids[-room:])


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
    for batch in by_length([tokens for tokens, _ in texts], batch_size):
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
