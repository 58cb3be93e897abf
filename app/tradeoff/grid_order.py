"""Controls of the Trade-off tab, and the runs that they request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from app.engines.limits import Limits, RefusalError
from app.ui.controls import DEFAULTS, Order, Prompt, control, read_controls, settings_for
from app.ui.rounds import in_turn
from mars_runtime.decoders.methods import LOOKUP
from mars_runtime.settings import DecodeSettings

LOSSLESS = "lossless"
"""The row whose cells write AR's text; the other rows are values of τ without verification."""
ROWS = (LOSSLESS, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
COLUMNS = (2, 3, 4, 6, 8)
CONTROLS = ("rows", "columns")
GRID = (*CONTROLS, "prompt", "max_new_tokens", "checkpoint", "system")
MAX_TOKENS = 96
NUM_ROUNDS = 3
REFERENCE = "ar"
"""Name of the cell with plain AR, with which all other cells are compared."""
ONE_TOKEN = (
    "This model predicts one token per pass, so there is nothing to compare. Choose another."
)
Cells = list[tuple[str, DecodeSettings]]


def _several(name: str, choices: tuple[Any, ...], what: str) -> Any:
    """Return the annotation of a control for at least one of these choices."""

    def read(value: object, limits: Limits) -> tuple[Any, ...]:
        chosen = value if isinstance(value, (list, tuple)) else ()
        if not chosen or not all(item in choices for item in chosen):
            raise RefusalError(name, f"Choose at least one {what}.")
        return tuple(choice for choice in choices if choice in chosen)

    return control(read)


class GridOrder(Order):
    """A validated request. rows: ``LOSSLESS`` or values of τ. columns: values of B.

    settings: those with which the page opens, with the posted token limit.
    """

    prompt: Prompt
    rows: Annotated[tuple[Any, ...], _several("rows", ROWS, "row")]
    columns: Annotated[tuple[int, ...], _several("columns", COLUMNS, "B")]

    @property
    def num_cells(self) -> int:
        return len(self.rows) * len(self.columns)

    def groups(self) -> Iterator[Cells]:
        """Yield AR + lookup, then the cells of each row."""
        yield [(LOOKUP, settings_for(LOOKUP, self.settings))]
        for row, kind in enumerate(self.rows):
            chosen = {} if kind == LOSSLESS else {"lossless": False, "tau": kind}
            of_row = replace(self.settings, **chosen)
            yield [
                (f"r{row}c{column}", settings_for("mars", replace(of_row, block_size=block_size)))
                for column, block_size in enumerate(self.columns)
            ]

    def turns(self, number: int) -> list[Cells]:
        """Return the groups of round ``number`` (from 0) in the order in which they run, each with
        its own run of AR, so that compared runs are close in time.
        """
        reference = (REFERENCE, settings_for(REFERENCE, self.settings))
        return [in_turn([reference, *group], number) for group in in_turn([*self.groups()], number)]

    def head(self) -> dict[str, Any]:
        """Return the head of the run's log."""
        rows = [
            {"tau": self.settings.tau if row == LOSSLESS else row, "lossless": row == LOSSLESS}
            for row in self.rows
        ]
        return {"prompt": self.prompt, "rows": rows, "columns": list(self.columns)}


def read_grid_order(values: Mapping[str, Any], limits: Limits) -> GridOrder:
    """Validate the values of all controls of the tab. Leaves out values of B that the checkpoint
    does not support. Raises RefusalError.
    """
    order = read_controls(GridOrder, values, limits, DEFAULTS)
    if limits.block_size < min(COLUMNS):
        raise RefusalError("checkpoint", ONE_TOKEN)
    columns = tuple(size for size in order.columns if size <= limits.block_size)
    tokens = min(order.settings.max_new_tokens, MAX_TOKENS)
    settings = replace(order.settings, max_new_tokens=tokens)
    return order.model_copy(
        update={"columns": columns or (limits.block_size,), "settings": settings}
    )
