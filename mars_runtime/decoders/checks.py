"""What AR would have chosen where tokens were taken unseen: known for free from the next forward.

Accepted tokens come back as real ones, so the slots before the first new prediction say what AR
would have chosen after each of them. Their hidden states are kept until the next forward; the head
is put on them only when somebody asks, after the forward's time was taken. Knows no rows' history.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mars_runtime.acceptance import DecodeError, Draw
from mars_runtime.decoders.base import CausalModel
from mars_runtime.events import RowStep, Step


class Checker:
    """The latest forward of a batch, as far as it can be asked about."""

    def __init__(self, model: CausalModel, forbidden: Tensor) -> None:
        """``forbidden``: ids that can never come out, as for ``acceptance.read``."""
        self._model = model
        self._forbidden = forbidden
        self._hidden: Any = None
        self._again: dict[int, tuple[int, int]] = {}

    def keep(self, hidden: Any, again: dict[int, tuple[int, int]]) -> None:
        """Remember a forward. hidden: of its rows, as the model gave it. again: number of a row ->
        its place in the forward, and how many of its first slots predict tokens that had left."""
        self._hidden, self._again = hidden, again

    @torch.inference_mode()
    def checked(self, step: Step, numbers: Collection[int]) -> Step:
        """The step of that forward, the rows among ``numbers`` with their checks."""
        wanted = [row for row in step.rows if row.row in numbers and self._again[row.row][1]]
        found = self._read(wanted) if wanted else {}
        if not found:
            return step
        rows = [replace(row, checks=found.get(row.row, ())) for row in step.rows]
        return replace(step, rows=tuple(rows))

    def _read(self, rows: list[RowStep]) -> dict[int, tuple[tuple[int, float], ...]]:
        """Token and probability of each slot. Nothing where logits are no numbers: what is only
        shown must not end a run."""
        places = [self._again[row.row] for row in rows]
        longest = max(count for _, count in places)
        hidden = self._hidden[[place for place, _ in places]]
        draws = [_draw(row) for row in rows]
        try:
            readings = self._model.read(
                hidden, slice(0, longest), self._forbidden, ["probability"] * len(rows), draws
            )
        except DecodeError:
            return {}
        return {
            row.row: tuple((slot.token, slot.confidence) for slot in slots[:count])
            for row, (_, count), slots in zip(rows, places, readings, strict=True)
        }


def _draw(row: RowStep) -> Draw | None:
    """The noise that AR would meet at the same places."""
    first = row.cursor + 1
    return Draw.of(row.settings, range(first, first + row.num_pending))
