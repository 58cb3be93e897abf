"""A scripted model whose forward takes its cursors from a tensor, and events without their Q."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from helpers import Script, ScriptedCache, ScriptedModel, peaked
from torch import Tensor

from mars_runtime.events import Event, Step


class StaticScriptedModel(ScriptedModel):
    """Rows that stand where places without a row are parked are not looked at."""

    def __init__(self, script: Script, max_positions: int = 512) -> None:
        super().__init__(script, max_positions=max_positions)
        self.kept: dict[str, Any] = {}

    def forward_at(
        self, tokens: Tensor, cache: ScriptedCache, head: Tensor, cursors: Tensor, context: int
    ) -> Tensor:
        table = []
        parked = cache.capacity - tokens.shape[1]
        lines = zip(tokens.tolist(), cursors.tolist(), head.tolist(), strict=True)
        for row, (ids, first, slots) in enumerate(lines):
            if first == parked:
                table.append([peaked(3)] * len(slots))
                continue
            assert first + len(ids) <= context, "read behind the context"
            cache.cursors[row] = first
            cache.slots[row][first : first + len(ids)] = ids
            table.append(self._row(cache, row, slots))
        return torch.tensor(table)


def outlines(events: Iterable[Event]) -> list[list[object]]:
    """Step by step what happened to the rows, by number; how many masks were fed is left out."""
    steps = (event for event in events if isinstance(event, Step))
    return [sorted((replace(row, num_fed=0) for row in step.rows), key=_row) for step in steps]


def _row(step: object) -> int:
    return step.row  # type: ignore[attr-defined,no-any-return]
