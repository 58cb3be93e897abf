"""The figures of an evaluation. Averages exclude natural text, which has no right answer; all
families of an average have equal weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime import tasks
from mars_runtime.lab.evaluation.measure import Cell, RowOutput
from mars_runtime.lab.tables import NONE, Table, number, percent, points, share
from mars_runtime.runs import statistics
from mars_runtime.runs.statistics import Estimate
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class Outcome:
    output: RowOutput
    is_right: bool | None


Results = Mapping[Cell, Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Figures:
    """accuracy: None without a checker. accuracy_change: difference from AR's with the same
    weights, paired by prompt. right: share among the answers with a checker. tpf: mean over
    prompts. agreement: share of prompts with AR's tokens. num_tokens: of an answer. looped: share
    cut at a loop."""

    checkpoint: str
    settings: DecodeSettings
    families: tuple[str, ...]
    accuracy: Estimate | None
    accuracy_change: Estimate | None
    right: float | None
    tpf: Estimate
    by_kind: dict[str, Estimate]
    agreement: float | None
    num_tokens: float
    ended: float
    looped: float


def averages(results: Results, *, is_open: bool) -> list[Figures]:
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell, outcomes in results.items():
        if tasks.is_open(cell.family) == is_open and (is_open or _is_judged(outcomes)):
            key = (cell.checkpoint, cell.fingerprint, cell.dtype, cell.settings)
            groups.setdefault(key, []).append(cell)
    return [figures_of(cells, results) for cells in groups.values()]


def figures_of(cells: Sequence[Cell], results: Results) -> Figures:
    groups = [results[cell] for cell in cells]
    references = [_ar_of(cell, results) for cell in cells]
    pairs = [
        list(zip(own, ar, strict=True)) for own, ar in zip(groups, references, strict=True) if ar
    ]
    every = [outcome for group in groups for outcome in group]
    same = [own.output.tokens == ar.output.tokens for group in pairs for own, ar in group]
    judged = [outcome.is_right for outcome in every if outcome.is_right is not None]
    accuracy = change = None
    if len(judged) == len(every):
        counts = [(sum(o.is_right is True for o in group), len(group)) for group in groups]
        one = len(counts) == 1
        accuracy = statistics.wilson(*counts[0]) if one else statistics.mean_of_shares(counts)
        if not cells[0].settings.facts.is_reference and len(pairs) == len(groups):
            change = statistics.mean_of_means(
                [[float(own.is_right is True) - float(ar.is_right is True) for own, ar in group]
                 for group in pairs]
            )  # fmt: skip
    rates = [[outcome.output.tokens_per_forward for outcome in group] for group in groups]
    return Figures(
        checkpoint=cells[0].checkpoint,
        settings=cells[0].settings,
        families=tuple(cell.family for cell in cells),
        accuracy=accuracy,
        accuracy_change=change,
        right=_mean(judged) if judged else None,
        tpf=statistics.mean_of_means(rates),
        by_kind={cell.family: statistics.mean(own) for cell, own in zip(cells, rates, strict=True)},
        agreement=_mean(same) if same else None,
        num_tokens=_mean(len(outcome.output.tokens) for outcome in every),
        ended=_mean(outcome.output.is_ended for outcome in every),
        looped=_mean(outcome.output.is_looped for outcome in every),
    )


def to_json(results: Results) -> dict[str, Any]:
    return {
        "averages": [asdict(figures) for figures in averages(results, is_open=False)],
        "requests": [asdict(figures) for figures in averages(results, is_open=True)],
        "cells": [
            {"cell": asdict(cell), **asdict(figures_of([cell], results))} for cell in results
        ],
    }


def table(results: Results) -> Table:
    """Show a family's tokens per forward pass after its share of right answers."""
    summaries = {(figures.checkpoint, figures.settings): figures for is_open in (True, False)
                 for figures in averages(results, is_open=is_open)}  # fmt: skip
    families = list(dict.fromkeys(cell.family for cell in results))
    rows: dict[str, dict[str, Figures]] = {}
    for cell in results:
        rows.setdefault(cell.method, {})[cell.family] = figures_of([cell], results)
    lines = []
    for method, by_family in rows.items():
        first = next(iter(by_family.values()))
        average = summaries.get((first.checkpoint, first.settings))
        head = (
            percent(average.accuracy if average else None),
            points(average.accuracy_change if average else None),
            number(average.tpf if average else None),
            share(average.agreement if average else None),
        )
        texts = [_text(by_family[name]) if name in by_family else NONE for name in families]
        lines.append((method, *head, *texts))
    columns = ("method", "accuracy %", "against AR", "TPF", "same as AR", *families)
    return Table("Averages with 95 % intervals, and families", columns, tuple(lines))


def _text(figures: Figures) -> str:
    right = f"{figures.accuracy.value * 100:.0f} % · " if figures.accuracy else ""
    return f"{right}{figures.tpf.value:.2f}"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return float(sum(listed) / len(listed))


def _is_judged(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome.is_right is not None for outcome in outcomes)


def _ar_of(cell: Cell, results: Results) -> Sequence[Outcome] | None:
    for other, outcomes in results.items():
        if other.settings.facts.is_reference and other.reference == cell.reference:
            return outcomes
    return None
