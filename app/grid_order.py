"""Reads what the Grid tab, or anyone who posts past it, sends. Knows no gradio or engine.

Every value arrives raw; a refusal is one sentence that names what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.controls import (
    DEFAULTS,
    Limits,
    RefusalError,
    lane_settings,
    read_prompt,
    read_setting,
)
from mars_runtime.settings import DecodeSettings

TAUS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
BLOCK_SIZES = (2, 3, 4, 6, 8, 12, 16)
USUAL_TAUS, USUAL_BLOCK_SIZES = (0.5, 0.7, 0.8, 0.9, 0.95), (2, 4, 8)
LOSSLESS_TAU = 0.0  # drafts as bold as can be: nothing wrong can come of it
MAX_CELLS, MAX_TOKENS = 20, 256
REFERENCE = "ar"
"""The lane of plain AR, which every cell is held against."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the grid: a threshold, checked against AR or not."""

    tau: float
    is_lossless: bool = False

    def settings(self, start: DecodeSettings) -> DecodeSettings:
        """``start`` with what the row stands for; drafts as the page begins with."""
        if not self.is_lossless:
            return replace(start, tau=self.tau)
        groups, lookup = DEFAULTS.groups, DEFAULTS.lookup
        return replace(start, tau=self.tau, lossless=True, groups=groups, lookup=lookup)


@dataclass(frozen=True, slots=True)
class GridOrder:
    """A grid as asked for: one prompt, once as plain AR and once a cell."""

    prompt: str
    rows: tuple[Row, ...]
    block_sizes: tuple[int, ...]
    max_new_tokens: int
    checkpoint: str

    @property
    def num_cells(self) -> int:
        """Cells, the reference apart."""
        return len(self.rows) * len(self.block_sizes)

    def lanes(self) -> Iterator[tuple[str, DecodeSettings]]:
        """Lane -> its settings, in the order in which they run: the reference, then row by row."""
        start = DecodeSettings(max_new_tokens=self.max_new_tokens)
        yield REFERENCE, lane_settings(start, "ar")
        for at, row in enumerate(self.rows):
            for column, block_size in enumerate(self.block_sizes):
                yield f"r{at}c{column}", replace(row.settings(start), block_size=block_size)

    def head(self) -> dict[str, Any]:
        """The grid as the component is told of it."""
        return {
            "prompt": self.prompt,
            "rows": [{"tau": row.tau, "lossless": row.is_lossless} for row in self.rows],
            "columns": list(self.block_sizes),
        }


def read_grid_order(values: Mapping[str, Any], limits: Limits) -> GridOrder:
    """All of the tab's controls as an order. Raises RefusalError."""
    prompt = read_prompt(values.get("prompt"), limits)
    rows = [Row(tau) for tau in _read_several("taus", "tau", values, limits)]
    is_lossless = values.get("lossless", False)
    if not isinstance(is_lossless, bool):
        raise RefusalError("lossless", "The lossless row is either on or off.")
    if is_lossless:
        rows.append(Row(LOSSLESS_TAU, is_lossless=True))
    if not rows:
        raise RefusalError("taus", "Choose at least one τ, or the lossless row.")
    block_sizes = _read_several("block_sizes", "block_size", values, limits)
    if not block_sizes:
        raise RefusalError("block_sizes", "Choose at least one B.")
    if len(rows) * len(block_sizes) > MAX_CELLS:
        counted = f"{len(rows)} rows of {len(block_sizes)} are {len(rows) * len(block_sizes)}"
        raise RefusalError("taus", f"Choose at most {MAX_CELLS} cells; {counted}.")
    most = read_setting("max_new_tokens", values.get("max_new_tokens"), limits)
    if most > MAX_TOKENS:
        raise RefusalError("max_new_tokens", f"Choose at most {MAX_TOKENS} tokens a cell.")
    return GridOrder(prompt, tuple(rows), tuple(block_sizes), most, str(values["checkpoint"]))


def _read_several(field: str, setting: str, values: Mapping[str, Any], limits: Limits) -> list[Any]:
    """Some values of one setting, each judged alone, in order and once."""
    given = values.get(field)
    if not isinstance(given, (list, tuple)) or len(given) > MAX_CELLS:
        raise RefusalError(field, f"Choose up to {MAX_CELLS} values from the list.")
    try:
        return sorted({read_setting(setting, value, limits) for value in given})
    except RefusalError as refusal:
        raise RefusalError(field, str(refusal)) from None
    except TypeError:  # "auto" among numbers, or what cannot be compared
        raise RefusalError(field, "Choose values from the list.") from None
