"""The tokens per forward pass of an adapter on held-out texts, exact for lossless greedy decoding:
it emits the base's greedy text, which is known, and masks affect only the number of passes.
``right[p]``: how many masks after position p are right before the first wrong one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from mars_runtime.lab.training.adapter.base import FrozenBase
from mars_runtime.lab.training.adapter.loss import right_masks
from mars_runtime.lab.training.adapter.parameters import Parameters
from mars_runtime.lab.training.adapter.streams import AnchoredBatch, Text

Row = tuple[str, list[int]]
"""The kind of a text, and its ``right``."""
DEPTHS = (2, 3, 4, 6, 8)


def chosen(texts: Sequence[Text], per_kind: int) -> list[Text]:
    kinds: dict[str, list[Text]] = {}
    for text in texts:
        kinds.setdefault(text.kind, []).append(text)
    return [text for kind in sorted(kinds) for text in kinds[kind][:per_kind]]


def right_rows(
    base: FrozenBase, parameters: Parameters, texts: Sequence[Text], block_size: int
) -> list[Row]:
    batches = (AnchoredBatch.of([text], len(text.anchors), random.Random(0)) for text in texts)
    right = (right_masks(base, parameters, batch, block_size - 1)[0] for batch in batches)
    return [(text.kind, row) for text, row in zip(texts, right, strict=True)]


def summary(rows: Sequence[Row], block_size: int) -> dict[str, Any]:
    """Pairs of tokens per forward pass: with one group of masks, and with a group after every
    pending token. ``by_position``: share of groups in which the first j masks are right."""
    every = [right for _, right in rows]
    depths = [depth for depth in DEPTHS if depth <= block_size]
    by_kind = {k: [right for kind, right in rows if kind == k] for k in sorted(dict(rows))}
    return {
        "texts": len(rows),
        "tokens": sum(map(len, every)),
        "by_depth": {depth: _rounded(tokens_per_forward(every, depth)) for depth in depths},
        "by_kind": {k: _rounded(tokens_per_forward(r, depths[-1])) for k, r in by_kind.items()},
        "by_position": _rounded(right_by_position(every, block_size - 1)),
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def forwards_every(right: Sequence[int], block_size: int) -> int:
    """Count the passes if every pass has drafts to verify."""
    at = count = 0
    while at < len(right):
        at += 1 + min(right[at], block_size - 1)
        count += 1
    return count


def forwards_one(right: Sequence[int], block_size: int) -> int:
    """Count the passes if masks follow only the last draft, so a pass gives drafts only if all
    drafts that it verifies are right."""
    at = count = 0
    drafts_right: int | None = None  # None: the next pass has no drafts to verify
    while at < len(right):
        count += 1
        last = at + (drafts_right or 0)
        missed = drafts_right is not None and drafts_right < block_size - 1
        drafts_right = None if missed or last >= len(right) else min(right[last], block_size - 1)
        at = last + 1
    return count


def tokens_per_forward(texts: Sequence[Sequence[int]], block_size: int) -> tuple[float, float]:
    tokens = sum(map(len, texts))
    num_single = sum(forwards_one(text, block_size) for text in texts)
    num_every = sum(forwards_every(text, block_size) for text in texts)
    return tokens / max(1, num_single), tokens / max(1, num_every)


def right_by_position(texts: Sequence[Sequence[int]], num_masks: int) -> list[float]:
    groups = max(1, sum(map(len, texts)))
    return [sum(r >= j for text in texts for r in text) / groups for j in range(1, num_masks + 1)]
