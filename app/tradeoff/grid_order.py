"""Validation of the controls of the Grid tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui import rounds
from app.ui.controls import (
    BLOCK_SIZE,
    CHECKPOINT,
    MAX_NEW_TOKENS,
    PLAIN,
    PROMPT,
    SYSTEM,
    TAU,
    Control,
    read_all,
    settings_for,
    switch,
)
from app.ui.rounds import in_turn
from mars_runtime.settings import DecodeSettings

TAUS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
BLOCK_SIZES = (2, 3, 4, 6, 8, 12, 16)
USUAL_TAUS, USUAL_BLOCK_SIZES = (0.5, 0.7, 0.8, 0.9), (2, 4, 8)
LOSSLESS_TAU = 0.0  # with this τ every proposal becomes a draft, and is then verified
MAX_CELLS, MAX_TOKENS = 20, 256
REFERENCE = "ar"
"""Name of the cell with plain AR, with which all other cells are compared."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One row of the grid: a value of τ, with or without lossless."""

    tau: float
    is_lossless: bool = False

    def settings(self, start: DecodeSettings) -> DecodeSettings:
        """Return the settings ``start`` with this row's threshold. A lossless row also uses prompt
        lookup.
        """
        if not self.is_lossless:
            return replace(start, tau=self.tau)
        return replace(start, tau=self.tau, lossless=True, lookup=True)


@dataclass(frozen=True, slots=True)
class GridOrder:
    """A validated grid request."""

    prompt: str
    thresholds: tuple[Threshold, ...]
    block_sizes: tuple[int, ...]
    max_new_tokens: int
    checkpoint: str
    rounds: int
    system: str = ""

    @property
    def num_cells(self) -> int:
        """Number of cells, without the AR cell."""
        return len(self.thresholds) * len(self.block_sizes)

    def cells(self) -> Iterator[tuple[str, DecodeSettings]]:
        """Yield the name and settings of each cell: first the AR cell, then row by row."""
        start = replace(PLAIN, max_new_tokens=self.max_new_tokens)
        yield REFERENCE, settings_for("ar", start)
        for row, threshold in enumerate(self.thresholds):
            for column, block_size in enumerate(self.block_sizes):
                settings = replace(threshold.settings(start), block_size=block_size)
                yield f"r{row}c{column}", settings

    def turns(self, number: int) -> list[list[tuple[str, DecodeSettings]]]:
        """Return the cells of round ``number`` (from 0) in the order in which they run, as one list
        per row.

        Each row has its own run of AR, so that compared runs are close in time.
        """
        reference, *cells = self.cells()
        width = len(self.block_sizes)
        rows = [cells[start : start + width] for start in range(0, len(cells), width)]
        return [in_turn([reference, *row], number) for row in in_turn(rows, number)]

    def head(self) -> dict[str, Any]:
        """Return the head of the run's log."""
        return {
            "prompt": self.prompt,
            "rows": [
                {"tau": threshold.tau, "lossless": threshold.is_lossless}
                for threshold in self.thresholds
            ],
            "columns": list(self.block_sizes),
            "rounds": self.rounds,
        }


def read_several(field: str, setting: Control, value: object, limits: Limits) -> list[Any]:
    """Return several validated values of one setting, sorted and without duplicates. Raises
    RefusalError.
    """
    if not isinstance(value, (list, tuple)) or len(value) > MAX_CELLS:
        raise RefusalError(field, f"Choose up to {MAX_CELLS} values from the list.")
    try:
        return sorted({setting.read(item, limits) for item in value})
    except RefusalError as refusal:
        raise RefusalError(field, str(refusal)) from None
    except TypeError:  # values of different types, such as "auto" and a number, cannot be sorted
        raise RefusalError(field, "Choose values from the list.") from None


GRID = (
    PROMPT,
    Control("taus", partial(read_several, "taus", TAU)),
    Control("block_sizes", partial(read_several, "block_sizes", BLOCK_SIZE)),
    switch("lossless", "The lossless row"),
    MAX_NEW_TOKENS,
    rounds.CONTROL,
    CHECKPOINT,
    SYSTEM,
)


def read_grid_order(values: Mapping[str, Any], limits: Limits) -> GridOrder:
    """Validate the values of all controls of the tab. Raises RefusalError."""
    read = read_all(GRID, {"lossless": False, "rounds": rounds.ROUNDS[0], **values}, limits)
    thresholds = [*map(Threshold, read["taus"])]
    if read["lossless"]:
        thresholds.append(Threshold(LOSSLESS_TAU, is_lossless=True))
    if not thresholds:
        raise RefusalError("taus", "Choose at least one τ, or the lossless row.")
    block_sizes = read["block_sizes"]
    if not block_sizes:
        raise RefusalError("block_sizes", "Choose at least one B.")
    num_cells = len(thresholds) * len(block_sizes)
    if num_cells > MAX_CELLS:
        counted = f"{len(thresholds)} rows × {len(block_sizes)} columns = {num_cells}"
        raise RefusalError("taus", f"Choose at most {MAX_CELLS} cells (you chose {counted}).")
    most = read["max_new_tokens"]
    if most > MAX_TOKENS:
        raise RefusalError(
            "max_new_tokens", f"Choose at most {MAX_TOKENS} tokens per cell (you chose {most})."
        )
    return GridOrder(
        read["prompt"],
        tuple(thresholds),
        tuple(block_sizes),
        most,
        read["checkpoint"],
        read["rounds"],
        read["system"],
    )
