"""Format figures, and render tables for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import rich.box
import rich.table
from rich.console import Group
from rich.text import Text

from mars_runtime.runs.statistics import Estimate

NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Group:
        """Put intervals on a second line to save width."""
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for index, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if index == 0 else "right"
            header = column.replace("_", " ")
            parts = [part for line in self.lines for part in _parts(_in_two_lines(line[index]))]
            # No figure may be wrapped, even if the table becomes wider than the terminal.
            width = max(map(len, [*header.split(), *parts]))
            table.add_column(header, justify=justify, min_width=width)
        for line in self.lines:
            table.add_row(*(Text(_in_two_lines(cell)) for cell in line))
        return Group(Text(self.title, style="bold"), table)


def percent(estimate: Estimate | None) -> str:
    """Format as ``93.1 [88.0, 96.2]``."""
    return _interval(estimate.scaled(100), ".1f") if estimate else NONE


def points(estimate: Estimate | None) -> str:
    """Format in percentage points, as ``+1.2 [-0.3, +2.7]``."""
    return _interval(estimate.scaled(100), "+.1f") if estimate else NONE


def number(estimate: Estimate | None) -> str:
    return _interval(estimate, ".2f") if estimate else NONE


def share(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value * 100:.0f} %" if value in (0.0, 1.0) else f"{value * 100:.1f} %"


def _in_two_lines(cell: str) -> str:
    return cell.replace(" [", "\n[").replace(" · ", "\n").replace("_", " ")


def _parts(cell: str) -> list[str]:
    """Return what must not be wrapped: intervals and single words."""
    return [
        part
        for line in cell.split("\n")
        for part in ([line] if line.startswith("[") else line.split())
    ]


def _interval(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
