"""Compute the figures of an evaluation, and build its tables.

Averages exclude natural text and open-ended requests, which have no right answer. The tokens of
every method are compared with AR's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime import tasks
from mars_runtime.lab.evaluation.grid import GridCell
from mars_runtime.lab.evaluation.measure import Outcome, survival
from mars_runtime.lab.tables import NONE, Table, number, percent, points, share
from mars_runtime.runs import statistics
from mars_runtime.runs.statistics import Estimate
from mars_runtime.settings import DecodeSettings, describe

Results = Mapping[GridCell, Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one cell.

    - accuracy: share of right answers with Wilson's interval, None without a checker. right: the
      same among the answers with a checker, if some requests have one.
    - tpf: tokens per forward pass, as the mean over prompts.
    - agreement: share of prompts with the same tokens as AR; None if AR was not measured.
    - ended, looped: shares of answers that ended with EOS within the limit, and that were cut at a
      loop.
    - first_mask: acceptance rate of the second token of a forward pass, None if no pass had one.
    """

    cell: GridCell
    accuracy: Estimate | None
    tpf: Estimate
    agreement: float | None
    ended: float
    num_tokens: int
    num_forwards: int
    looped: float
    right: float | None
    first_mask: float | None


@dataclass(frozen=True, slots=True)
class Average:
    """The averages of one method over the task families, which have equal weight.

    accuracy_change: difference from AR's accuracy with the same weights, paired by prompt; None for
        AR.
    """

    checkpoint: str
    settings: DecodeSettings
    families: tuple[str, ...]
    accuracy: Estimate
    accuracy_change: Estimate | None
    tpf: Estimate
    agreement: float | None


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """The figures of one method on open-ended requests, without repetition loops.

    - tpf: tokens per forward pass. All kinds of requests have equal weight.
    - by_kind: kind of request -> tokens per forward pass.
    - num_tokens: mean number of tokens per answer.
    - ended, looped: shares of answers that ended with EOS, and that were cut at a loop.
    - by_place: acceptance rate at each position of a forward pass (see ``measure.survival``).
    """

    checkpoint: str
    settings: DecodeSettings
    tpf: Estimate
    by_kind: dict[str, Estimate]
    agreement: float | None
    num_tokens: float
    ended: float
    looped: float
    by_place: tuple[float, ...]


def to_json(results: Results) -> dict[str, Any]:
    """Return all figures as JSON values. Shares are between 0 and 1."""
    return {
        "averages": [asdict(figure) for figure in average(results)],
        "cells": [asdict(figure) for figure in summarise(results)],
        "requests": [asdict(figure) for figure in request_figures(results)],
    }


def table(results: Results) -> Table:
    """Return a table with one row per method: averages with 95 % intervals, and the tokens per
    forward pass of each family after its share of right answers.
    """
    by_family: dict[str, dict[str, str]] = {}
    for summary in summarise(results):
        right = f"{summary.accuracy.value * 100:.0f} % · " if summary.accuracy else ""
        text = f"{right}{summary.tpf.value:.2f}"
        by_family.setdefault(_method(summary.cell), {})[summary.cell.family] = text
    of_tasks = {_method(figure): figure for figure in average(results)}
    of_requests = {_method(figure): figure for figure in request_figures(results)}
    families = list(dict.fromkeys(cell.family for cell in results))
    lines = []
    for method, texts in by_family.items():
        judged = of_tasks.get(method)
        figures = judged or of_requests.get(method)
        line = [
            method,
            percent(judged.accuracy if judged else None),
            points(judged.accuracy_change if judged else None),
            number(figures.tpf if figures else None),
            share(figures.agreement if figures else None),
        ]
        lines.append((*line, *(texts.get(family, NONE) for family in families)))
    columns = ("method", "accuracy %", "against AR", "TPF", "same as AR", *families)
    return Table("Averages with 95 % intervals, and families", columns, tuple(lines))


def summarise(results: Results) -> list[Summary]:
    return [_summary(cell, results) for cell in results]


def _summary(cell: GridCell, results: Results) -> Summary:
    outcomes = results[cell]
    judged = [outcome for outcome in outcomes if outcome.is_right is not None]
    num_right = sum(outcome.is_right is True for outcome in outcomes)
    return Summary(
        cell=cell,
        accuracy=statistics.wilson(num_right, len(outcomes)) if _is_judged(outcomes) else None,
        tpf=statistics.mean(_rates(outcomes)),
        agreement=_agreement_with_ar([cell], results),
        ended=_share_of("is_ended", outcomes),
        num_tokens=sum(outcome.num_tokens for outcome in outcomes),
        num_forwards=sum(outcome.num_forwards for outcome in outcomes),
        looped=_share_of("is_looped", outcomes),
        right=num_right / len(judged) if judged else None,
        first_mask=(*_by_place(outcomes), None, None)[1],
    )


def average(results: Results) -> list[Average]:
    groups: dict[tuple[str, str, DecodeSettings], list[GridCell]] = {}
    for cell, outcomes in results.items():
        if not tasks.is_open(cell.family) and _is_judged(outcomes):
            groups.setdefault((cell.checkpoint, cell.fingerprint, cell.settings), []).append(cell)
    return [_average(cells, results) for cells in groups.values()]


def _average(cells: Sequence[GridCell], results: Results) -> Average:
    groups = [results[cell] for cell in cells]
    ar = [_ar_of(cell, results) for cell in cells]
    right = [[float(o.is_right is True) for o in group] for group in groups]
    change = None
    if not cells[0].settings.facts.is_reference and all(outcomes is not None for outcomes in ar):
        ar_right = [[float(o.is_right is True) for o in outcomes or ()] for outcomes in ar]
        pairs = zip(right, ar_right, strict=True)
        change = statistics.mean_of_means(
            [[a - b for a, b in zip(x, y, strict=True)] for x, y in pairs]
        )
    return Average(
        checkpoint=cells[0].checkpoint,
        settings=cells[0].settings,
        families=tuple(cell.family for cell in cells),
        accuracy=statistics.mean_of_shares([(int(sum(group)), len(group)) for group in right]),
        accuracy_change=change,
        tpf=statistics.mean_of_means(list(map(_rates, groups))),
        agreement=_agreement_with_ar(cells, results),
    )


def request_figures(results: Results) -> list[RequestFigures]:
    by_method: dict[tuple[str, str, str, DecodeSettings], list[GridCell]] = {}
    for cell in results:
        if tasks.is_open(cell.family):
            key = (cell.checkpoint, cell.fingerprint, cell.dtype, cell.settings)
            by_method.setdefault(key, []).append(cell)
    return [_request_figures(cells, results) for cells in by_method.values()]


def _request_figures(cells: Sequence[GridCell], results: Results) -> RequestFigures:
    rates = {cell.family: _rates(results[cell]) for cell in cells}
    every = [outcome for cell in cells for outcome in results[cell]]
    return RequestFigures(
        checkpoint=cells[0].checkpoint,
        settings=cells[0].settings,
        tpf=statistics.mean_of_means(list(rates.values())),
        by_kind={kind: statistics.mean(values) for kind, values in rates.items()},
        agreement=_agreement_with_ar(cells, results),
        num_tokens=sum(outcome.num_tokens for outcome in every) / len(every),
        ended=_share_of("is_ended", every),
        looped=_share_of("is_looped", every),
        by_place=tuple(_by_place(every)),
    )


def _rates(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.tokens_per_forward for outcome in outcomes]


def _share_of(name: str, outcomes: Sequence[Outcome]) -> float:
    return float(sum(getattr(outcome, name) for outcome in outcomes) / len(outcomes))


def _by_place(outcomes: Sequence[Outcome]) -> list[float]:
    return survival(
        forward
        for outcome in outcomes
        for forward in zip(outcome.taken, outcome.offered, strict=True)
    )


def _agreement_with_ar(cells: Sequence[GridCell], results: Results) -> float | None:
    same = [
        outcome.output_id == other.output_id
        for cell in cells
        if (ar := _ar_of(cell, results)) is not None
        for outcome, other in zip(results[cell], ar, strict=True)
    ]
    return sum(same) / len(same) if same else None


def _is_judged(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome.is_right is not None for outcome in outcomes)


def _ar_of(cell: GridCell, results: Results) -> Sequence[Outcome] | None:
    """Return AR's outcomes with the same weights, prompts and limit, or None."""
    for other, outcomes in results.items():
        if (
            other.settings.facts.is_reference
            and other.fingerprint == cell.fingerprint
            and other.checkpoint == cell.checkpoint
            and other.dtype == cell.dtype
            and other.prompts_id == cell.prompts_id
            and other.settings.max_new_tokens == cell.settings.max_new_tokens
        ):
            return outcomes
    return None


def _method(record: GridCell | Average | RequestFigures) -> str:
    return f"{record.checkpoint} · {describe(record.settings)}"
