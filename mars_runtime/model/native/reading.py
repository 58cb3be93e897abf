"""Tokens, confidences and runners-up straight from hidden states, by the compiled library.

The same values as ``acceptance.read`` gives for the logits, up to rounding, without the logits.
Knows hidden states and numbers; knows no forward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mars_runtime import acceptance
from mars_runtime.acceptance import NO_NUMBER, NUM_RUNNERS_UP, DecodeError, Draw
from mars_runtime.events import Proposal
from mars_runtime.model.slots import MaskGroup
from mars_runtime.settings import Metric

BEST = NUM_RUNNERS_UP + 1
"""Candidates of a slot; as in ``read.h``."""


class Reader:
    """The head of one model. ``ranks``: whether it has a sampler head too."""

    def __init__(self, library: Any, model: Any, vocab_size: int, *, ranks: bool) -> None:
        self._library, self._model, self._vocab_size = library, model, vocab_size
        self._ranks = ranks
        self._forbidden: Tensor | None = None
        self._is_forbidden = torch.zeros(vocab_size, dtype=torch.uint8)

    def logits(self, chosen: Tensor, num_threads: int) -> Tensor:
        """[R, H, V] of hidden states [R, H, hidden]."""
        rows, slots = chosen.shape[:2]
        out = torch.empty(rows, slots, self._vocab_size)
        self._library.mars_logits(
            self._model, num_threads, chosen.data_ptr(), rows * slots, out.data_ptr()
        )
        return out

    def read(
        self,
        chosen: Tensor,
        forbidden: Tensor,
        metrics: Sequence[Metric],
        draws: Sequence[Draw | None] | None,
        groups: Sequence[MaskGroup],
        num_threads: int,
    ) -> list[list[Proposal]]:
        """``acceptance.read`` of hidden states [R, H, hidden], and ``Reranker.rank`` of the groups
        of rows that do not draw."""
        drawing = [row for row, draw in enumerate(draws or ()) if draw]
        if not drawing:
            return self._greedy(chosen, forbidden, metrics, groups, num_threads)
        assert draws is not None
        found: dict[int, list[Proposal]] = {}
        broken: list[int] = []
        greedy = [row for row in range(len(metrics)) if row not in drawing]
        for rows in (greedy, drawing):
            if not rows:
                continue
            some, measures = chosen[rows], [metrics[row] for row in rows]
            try:
                if rows is greedy:
                    own = _among(groups, rows)
                    slots = self._greedy(some, forbidden, measures, own, num_threads)
                else:
                    logits = self.logits(some, num_threads)
                    slots = acceptance.read(logits, forbidden, measures, [draws[r] for r in rows])
                found.update(zip(rows, slots, strict=True))
            except DecodeError as error:
                broken += [rows[place] for place in error.rows]
        if broken:
            raise DecodeError(NO_NUMBER, tuple(sorted(broken)))
        return [found[row] for row in range(len(metrics))]

    def _greedy(
        self,
        chosen: Tensor,
        forbidden: Tensor,
        metrics: Sequence[Metric],
        groups: Sequence[MaskGroup],
        num_threads: int,
    ) -> list[list[Proposal]]:
        rows, slots = chosen.shape[:2]
        ranked = _numbers(groups if self._ranks else (), slots)
        count = rows * slots
        ids = torch.empty(count, BEST, dtype=torch.int32)
        probabilities = torch.empty(count, BEST)
        entropies = torch.empty(count)
        is_finite = torch.empty(count, dtype=torch.bool)
        self._library.mars_read(
            self._model,
            num_threads,
            chosen.data_ptr(),
            count,
            self._map(forbidden).data_ptr(),
            len(ranked),
            ranked.data_ptr(),
            ids.data_ptr(),
            probabilities.data_ptr(),
            entropies.data_ptr(),
            is_finite.data_ptr(),
        )
        if not is_finite.all():
            broken = (~is_finite.view(rows, slots).all(1)).nonzero().flatten().tolist()
            raise DecodeError(NO_NUMBER, tuple(broken))
        all_metrics = [metric for metric in metrics for _ in range(slots)]
        most = math.log(max(self._vocab_size - len(forbidden), 2))
        found = [
            _proposal(*numbers, most)
            for numbers in zip(
                ids.tolist(),
                probabilities.tolist(),
                entropies.tolist(),
                all_metrics,
                strict=True,
            )
        ]
        return [found[row * slots : (row + 1) * slots] for row in range(rows)]

    def _map(self, forbidden: Tensor) -> Tensor:
        """1 for each id that can never come out."""
        # Each batch has its own tensor of them, which is nearly always equal to the one before.
        if self._forbidden is None or not torch.equal(forbidden, self._forbidden):
            self._is_forbidden.zero_()[forbidden] = 1
            self._forbidden = forbidden
        return self._is_forbidden


def _among(groups: Sequence[MaskGroup], rows: Sequence[int]) -> list[MaskGroup]:
    """Those of some rows, which are counted anew."""
    return [replace(group, row=rows.index(group.row)) for group in groups if group.row in rows]


def _numbers(groups: Sequence[MaskGroup], slots: int) -> Tensor:
    """int32 [G, 3], a MaskGroup of ``rank.h`` each, where all rows have this many slots."""
    found = [
        (group.row * slots + group.before, group.row * slots + group.masks.start, len(group.masks))
        for group in groups
    ]
    return torch.tensor(found, dtype=torch.int32)


def _proposal(
    ids: list[int], probabilities: list[float], entropy: float, metric: Metric, most: float
) -> Proposal:
    """``most``: the entropy of knowing nothing."""
    pairs = [pair for pair in zip(ids, probabilities, strict=True) if pair[1]]  # 0: forbidden
    token, confidence = pairs[0]
    if metric == "margin":
        confidence -= pairs[1][1] if len(pairs) > 1 else 0.0
    elif metric == "entropy":
        confidence = min(1.0, max(0.0, 1.0 - entropy / most))
    return Proposal(token, confidence, tuple(pairs[1:]))
