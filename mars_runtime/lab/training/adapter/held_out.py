"""What an adapter is worth on texts it was not trained on: tokens per forward, by kind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from mars_runtime.lab.training.adapter.loss import Learnt, right_masks
from mars_runtime.lab.training.adapter.simulate import right_by_position, tokens_per_forward
from mars_runtime.lab.training.adapter.texts import Batch, Text
from mars_runtime.lab.training.backbone import Backbone

Row = tuple[str, list[int]]
DEPTHS = (2, 3, 4, 6, 8)


def chosen(texts: Sequence[Text], per_kind: int) -> list[Text]:
    """The first ``per_kind`` texts of each kind, so that every measurement reads the same ones."""
    kinds: dict[str, list[Text]] = {}
    for text in texts:
        kinds.setdefault(text.kind, []).append(text)
    return [text for kind in sorted(kinds) for text in kinds[kind][:per_kind]]


def right_rows(
    model: Backbone,
    parameters: Learnt,
    texts: Sequence[Text],
    block_size: int,
) -> list[Row]:
    """For each text its kind and, for each anchor, how many leading masks are right."""
    rows: list[Row] = []
    for text in texts:
        batch = Batch.of([text], len(text.anchors), random.Random(0))
        rows.append((text.kind, right_masks(model, parameters, batch, block_size - 1)[0]))
    return rows


def summary(rows: Sequence[Row], block_size: int) -> dict[str, Any]:
    """Tokens per forward [one group, a group after every pending token] by depth over all kinds, by
    kind at the trained depth, and how often the first j masks of a group are all right."""
    every = [right for _, right in rows]
    kinds = sorted({kind for kind, _ in rows})
    depths = [depth for depth in DEPTHS if depth <= block_size]
    by_kind = {k: [right for kind, right in rows if kind == k] for k in kinds}
    return {
        "texts": len(rows),
        "tokens": sum(map(len, every)),
        "by_depth": {depth: _rounded(tokens_per_forward(every, depth)) for depth in depths},
        "by_kind": {k: _rounded(tokens_per_forward(r, depths[-1])) for k, r in by_kind.items()},
        "by_position": _rounded(right_by_position(every, block_size - 1)),
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]
