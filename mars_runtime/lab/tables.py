"""Figures as text, and tables of them: for a terminal (rich) or a document (Markdown). Measures
nothing.
"""

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
"""What is written where there is no figure."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a line of column names, lines of cells: plain text."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, title: str, found: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]
    ) -> Table:
        """A line for each of ``found``; columns: what each says of it."""
        lines = tuple(tuple(cell(one) for cell in columns.values()) for one in found)
        return cls(title, tuple(columns), lines)

    def to_markdown(self) -> str:
        """A GitHub-flavoured table under its title in bold."""
        return f"**{self.title}**\n\n{self.rows_to_markdown()}"

    def rows_to_markdown(self, num_words: int = 1) -> str:
        """The same without its title. The first ``num_words`` columns hold words, the others
        figures."""
        marks = [*[":--"] * num_words, *["--:"] * (len(self.columns) - num_words)]
        body = [self.columns, tuple(marks), *self.lines]
        rows = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in body
        ]
        return "\n".join(rows)

    def to_rich(self) -> Group:
        """The same table for a terminal: two lines per cell, so that 80 columns are enough."""
        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for index, column in enumerate(self.columns):
            side: Literal["left", "right"] = "left" if index == 0 else "right"
            cells = [_in_two_lines(line[index]) for line in self.lines]
            header = column.replace("_", " ")
            # Whole words and whole intervals: a table wider than the terminal is easier to read
            # than one cut within its figures.
            width = max(map(len, [*header.split(), *(x for cell in cells for x in _parts(cell))]))
            table.add_column(header, justify=side, min_width=width)
        for line in self.lines:
            table.add_row(*(Text(_in_two_lines(cell)) for cell in line))
        return Group(Text(self.title, style="bold"), table)


def percent(found: Estimate | None) -> str:
    """``93.1 [88.0, 96.2]``, or a dash."""
    return _interval(found.scaled(100), ".1f") if found else NONE


def points(found: Estimate | None) -> str:
    """A difference of shares in points, signed."""
    return _interval(found.scaled(100), "+.1f") if found else NONE


def number(found: Estimate | None) -> str:
    """``1.93 [1.88, 1.99]``, or a dash."""
    return _interval(found, ".2f") if found else NONE


def share(found: float | None) -> str:
    """``100 %`` only when it is all of them."""
    if found is None:
        return NONE
    return f"{found * 100:.0f} %" if found in (0.0, 1.0) else f"{found * 100:.1f} %"


def _in_two_lines(cell: str) -> str:
    """An interval below its value, a way below its checkpoint."""
    return cell.replace(" [", "\n[").replace(" · ", "\n").replace("_", " ")


def _parts(cell: str) -> list[str]:
    """What must not be broken: intervals, and words elsewhere."""
    return [
        part
        for line in cell.split("\n")
        for part in ([line] if line.startswith("[") else line.split())
    ]


def _interval(found: Estimate, form: str) -> str:
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"
