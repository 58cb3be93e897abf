"""Figures as text, and tables for a terminal (rich) or a document (Markdown)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import rich.box
import rich.table
from rich.console import Group
from rich.text import Text

from mars_runtime.statistics import Estimate

Row = TypeVar("Row")
NONE = "–"
"""Shown where there is no figure."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, column names and rows of cells, all plain text."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, title: str, records: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]
    ) -> Table:
        """Return a table with a row per record; ``columns`` maps names to cells of a record."""
        lines = tuple(tuple(cell(record) for cell in columns.values()) for record in records)
        return cls(title, tuple(columns), lines)

    def to_markdown(self) -> str:
        """Return a GitHub-flavoured table below its title in bold."""
        return f"**{self.title}**\n\n{self.rows_to_markdown()}"

    def rows_to_markdown(self) -> str:
        """Return the table without its title. All columns but the first hold figures."""
        marks = (":--", *["--:"] * (len(self.columns) - 1))
        rows = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
            for line in (self.columns, marks, *self.lines)
        ]
        return "\n".join(rows)

    def to_rich(self) -> Group:
        """Return the table for a terminal, with two lines per cell so that it fits 80 columns."""
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for index, column in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if index == 0 else "right"
            header = column.replace("_", " ")
            parts = [part for line in self.lines for part in _parts(_in_two_lines(line[index]))]
            # A table wider than the terminal is easier to read than one with broken figures.
            width = max(map(len, [*header.split(), *parts]))
            table.add_column(header, justify=justify, min_width=width)
        for line in self.lines:
            table.add_row(*(Text(_in_two_lines(cell)) for cell in line))
        return Group(Text(self.title, style="bold"), table)


def percent(estimate: Estimate | None) -> str:
    """Return ``93.1 [88.0, 96.2]``, or a dash."""
    return _interval(estimate.scaled(100), ".1f") if estimate else NONE


def points(estimate: Estimate | None) -> str:
    """Return a signed difference of shares in points, or a dash."""
    return _interval(estimate.scaled(100), "+.1f") if estimate else NONE


def number(estimate: Estimate | None) -> str:
    """Return ``1.93 [1.88, 1.99]``, or a dash."""
    return _interval(estimate, ".2f") if estimate else NONE


def share(value: float | None) -> str:
    """Return a percentage that is ``100 %`` or ``0 %`` only if it is exact, or a dash."""
    if value is None:
        return NONE
    return f"{value * 100:.0f} %" if value in (0.0, 1.0) else f"{value * 100:.1f} %"


def _in_two_lines(cell: str) -> str:
    """Return a cell with the interval below its value and the method below its checkpoint."""
    return cell.replace(" [", "\n[").replace(" · ", "\n").replace("_", " ")


def _parts(cell: str) -> list[str]:
    """Return what must not be broken: intervals and single words."""
    return [
        part
        for line in cell.split("\n")
        for part in ([line] if line.startswith("[") else line.split())
    ]


def _interval(estimate: Estimate, form: str) -> str:
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"
