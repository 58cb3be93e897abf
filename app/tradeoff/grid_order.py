"""Validation of the controls of the Trade-off tab, and the runs that they request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui.controls import (
    CHECKPOINT,
    DEFAULTS,
    MAX_NEW_TOKENS,
    PROMPT,
    SYSTEM,
    Control,
    read_all,
    settings_for,
)
from app.ui.rounds import in_turn
from mars_runtime.decoders.methods import LOOKUP
from mars_runtime.settings import DecodeSettings

LOSSLESS = "lossless"
"""The row whose cells write AR's text; the other rows are values of τ without verification."""
ROWS = (LOSSLESS, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
COLUMNS = (2, 3, 4, 6, 8)
MAX_TOKENS = 96
NUM_ROUNDS = 3
REFERENCE = "ar"
"""Name of the cell with plain AR, with which all other cells are compared."""
ONE_TOKEN = (
    "This model predicts one token per pass, so there is nothing to compare. Choose another."
)
Cells = list[tuple[str, DecodeSettings]]


@dataclass(frozen=True, slots=True)
class GridOrder:
    """A validated request. rows: ``LOSSLESS`` or values of τ. columns: values of B."""

    prompt: str
    rows: tuple[Any, ...]
    columns: tuple[int, ...]
    max_new_tokens: int
    checkpoint: str
    system: str = ""

    @property
    def num_cells(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def start(self) -> DecodeSettings:
        """The settings with which the page opens."""
        return replace(DEFAULTS, max_new_tokens=self.max_new_tokens)

    def groups(self) -> Iterator[Cells]:
        """Yield AR + lookup, then the cells of each row."""
        yield [(LOOKUP, settings_for(LOOKUP, self.start))]
        for row, kind in enumerate(self.rows):
            chosen = {} if kind == LOSSLESS else {"lossless": False, "tau": kind}
            of_row = replace(self.start, **chosen)
            yield [
                (f"r{row}c{column}", settings_for("mars", replace(of_row, block_size=block_size)))
                for column, block_size in enumerate(self.columns)
            ]

    def turns(self, number: int) -> list[Cells]:
        """Return the groups of round ``number`` (from 0) in the order in which they run, each with
        its own run of AR, so that compared runs are close in time.
        """
        reference = (REFERENCE, settings_for(REFERENCE, self.start))
        return [in_turn([reference, *group], number) for group in in_turn([*self.groups()], number)]

    def head(self) -> dict[str, Any]:
        """Return the head of the run's log."""
        rows = [
            {"tau": self.start.tau if row == LOSSLESS else row, "lossless": row == LOSSLESS}
            for row in self.rows
        ]
        return {"prompt": self.prompt, "rows": rows, "columns": list(self.columns)}


def _several(name: str, choices: tuple[Any, ...], what: str) -> Control:
    """Return a control for at least one of these choices."""

    def read(value: object, limits: Limits) -> tuple[Any, ...]:
        chosen = value if isinstance(value, (list, tuple)) else ()
        if not chosen or not all(item in choices for item in chosen):
            raise RefusalError(name, f"Choose at least one {what}.")
        return tuple(choice for choice in choices if choice in chosen)

    return Control(name, read)


CONTROLS = (_several("rows", ROWS, "row"), _several("columns", COLUMNS, "B"))
GRID = (*CONTROLS, PROMPT, MAX_NEW_TOKENS, CHECKPOINT, SYSTEM)


def read_grid_order(values: Mapping[str, Any], limits: Limits) -> GridOrder:
    """Validate the values of all controls of the tab. Leaves out values of B that the checkpoint
    does not support. Raises RefusalError.
    """
    read = read_all(GRID, values, limits)
    if limits.block_size < min(COLUMNS):
        raise RefusalError("checkpoint", ONE_TOKEN)
    columns = tuple(size for size in read["columns"] if size <= limits.block_size)
    limited = {"max_new_tokens": min(read["max_new_tokens"], MAX_TOKENS)}
    return GridOrder(**{**read, **limited, "columns": columns or (limits.block_size,)})
