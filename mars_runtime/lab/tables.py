"""Format figures, and render tables for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import rich.box
import rich.table
from rich.console import Console
from rich.text import Text

from mars_runtime.runs.statistics import Estimate

NONE = "–"
MAX_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def print(self, console: Console) -> None:
        """Put intervals on a second line to save width. No figure is wrapped, even if the table is
        wider than the terminal."""
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for index, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if index == 0 else "right"
            table.add_column(column.replace("_", " "), justify=justify)
        for line in self.lines:
            table.add_row(*(Text(_in_lines(cell)) for cell in line))
        console.print(Text(self.title, style="bold"))
        console.print(table, width=MAX_WIDTH, crop=False)


def percent(estimate: Estimate | None) -> str:
    return _interval(estimate.scaled(100), ".1f") if estimate else NONE


def points(estimate: Estimate | None) -> str:
    return _interval(estimate.scaled(100), "+.1f") if estimate else NONE


def number(estimate: Estimate | None) -> str:
    return _interval(estimate, ".2f") if estimate else NONE


def share(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value * 100:.0f} %" if value in (0.0, 1.0) else f"{value * 100:.1f} %"


def _in_lines(cell: str) -> str:
    return cell.replace(" [", "\n[").replace(" · ", "\n").replace("_", " ")


def _interval(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
