"""Figures as tables: for a terminal (rich), a model card (markdown), programs (JSON values).

Knows summaries and averages; measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import rich.box
import rich.table
from rich.console import Group
from rich.text import Text

from mars_runtime.lab.evaluation.report import Average, Summary
from mars_runtime.settings import describe
from mars_runtime.statistics import Estimate

NONE = "–"
"""What is written where there is no figure."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a line of column names, lines of cells: plain text."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

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


def averages_table(averages: Sequence[Average], summaries: Sequence[Summary]) -> Table:
    """One line a way of decoding: the families' averages and natural text beside them."""
    natural = {
        (one.cell.checkpoint, one.cell.settings): one for one in summaries if one.accuracy is None
    }
    lines = []
    for one in averages:
        beside = natural.get((one.checkpoint, one.settings))
        lines.append(
            (
                f"{one.checkpoint} · {describe(one.settings)}",
                percent(one.accuracy),
                points(one.accuracy_change),
                number(one.tpf),
                share(one.agreement),
                number(beside.tpf) if beside else NONE,
            )
        )
    columns = ("way", "accuracy %", "against AR", "TPF", "same as AR", "natural TPF")
    return Table("Average over the families, with 95 % intervals", columns, tuple(lines))


def families_table(summaries: Sequence[Summary]) -> Table:
    """One line per way of decoding, one column per family: accuracy and tokens per forward."""

    def cell(one: Summary) -> str:
        right = f"{one.accuracy.value * 100:.0f} % · " if one.accuracy else ""
        return f"{right}{one.tpf.value:.2f}"

    return _matrix("Accuracy and TPF of each family", summaries, cell)


def details_table(summaries: Sequence[Summary]) -> Table:
    """One line per cell with every interval."""
    columns = ("cell", "prompts", "accuracy %", "TPF", "TPF pooled", "same as AR", "ended")
    lines = tuple(
        (
            one.cell.label,
            str(one.cell.num_prompts),
            percent(one.accuracy),
            number(one.tpf),
            number(one.tpf_pooled),
            share(one.agreement),
            share(one.ended),
        )
        for one in summaries
    )
    return Table("Every cell, with 95 % intervals", columns, lines)


def to_json(averages: Sequence[Average], summaries: Sequence[Summary]) -> dict[str, Any]:
    """Averages and cells as plain values; shares from 0 to 1."""
    return {
        "averages": [asdict(one) for one in averages],
        "cells": [asdict(one) for one in summaries],
    }


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


def _matrix(title: str, summaries: Sequence[Summary], cell: Callable[[Summary], str]) -> Table:
    families = list(dict.fromkeys(one.cell.family for one in summaries))
    ways: dict[str, dict[str, str]] = {}
    for one in summaries:
        way = f"{one.cell.checkpoint} · {describe(one.cell.settings)}"
        ways.setdefault(way, {})[one.cell.family] = cell(one)
    lines = tuple(
        (way, *(found.get(family, NONE) for family in families)) for way, found in ways.items()
    )
    return Table(title, ("way", *families), lines)
