"""Compute the figures of an evaluation, and build its tables.

Averages exclude natural text and open-ended requests, which have no right answer. The tokens of
every method are compared with AR's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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

    - accuracy: share of right answers with Wilson's interval, None without a checker.
    - tpf: tokens per forward pass, as the mean over prompts.
    - agreement: share of prompts with the same tokens as AR; None if AR was not measured.
    - ended: share of answers that ended with EOS within the limit.
    """

    cell: GridCell
    accuracy: Estimate | None
    tpf: Estimate
    agreement: float | None
    ended: float
    num_tokens: int
    num_forwards: int


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


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The figures of one method on one kind of open-ended requests, named as in RequestFigures.

    - first_mask: acceptance rate of the second token of a forward pass, None if no pass had one.
    - right: share of right answers among those with a checker, None if there are none.
    """

    checkpoint: str
    settings: DecodeSettings
    kind: str
    tpf: Estimate
    first_mask: float | None
    ended: float
    looped: float
    right: float | None
    agreement: float | None


def to_json(results: Results) -> dict[str, Any]:
    kinds = kind_figures(results)
    return {
        "averages": [asdict(figure) for figure in average(results)],
        "cells": [asdict(figure) for figure in summarise(results)],
        "requests": [asdict(figure) for figure in request_figures(results)],
        **({"kinds": [asdict(figure) for figure in kinds]} if kinds else {}),
    }


def tables(results: Results) -> Iterator[Table]:
    judged = {
        cell: outcomes for cell, outcomes in results.items() if not tasks.is_open(cell.family)
    }
    if judged:
        summaries = summarise(judged)
        yield averages_table(average(judged), summaries)
        yield families_table(summaries)
    yield from request_tables(request_figures(results))
    if kinds := kind_figures(results):
        yield kinds_table(kinds)


def summarise(results: Results) -> list[Summary]:
    return [_summary(cell, results) for cell in results]


def _summary(cell: GridCell, results: Results) -> Summary:
    outcomes = results[cell]
    tokens = [outcome.num_tokens for outcome in outcomes]
    forwards = [outcome.num_forwards for outcome in outcomes]
    accuracy = None
    if _is_judged(outcomes):
        accuracy = statistics.wilson(sum(o.is_right is True for o in outcomes), len(outcomes))
    return Summary(
        cell=cell,
        accuracy=accuracy,
        tpf=statistics.mean(_rates(outcomes)),
        agreement=_agreement_with_ar([cell], results),
        ended=_share_of("is_ended", outcomes),
        num_tokens=sum(tokens),
        num_forwards=sum(forwards),
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


def kind_figures(results: Results) -> list[KindFigures]:
    """Return the figures of each cell with open-ended requests; none if no kind in
    ``tasks.SHIFTED``, which differ from the training data, was measured.
    """
    cells = [cell for cell in results if tasks.is_open(cell.family)]
    if not any(cell.family in tasks.SHIFTED for cell in cells):
        return []
    return [_kind_figures(cell, results) for cell in cells]


def _kind_figures(cell: GridCell, results: Results) -> KindFigures:
    outcomes = results[cell]
    judged = [outcome for outcome in outcomes if outcome.is_right is not None]
    return KindFigures(
        checkpoint=cell.checkpoint,
        settings=cell.settings,
        kind=cell.family,
        tpf=statistics.mean(_rates(outcomes)),
        first_mask=(*_by_place(outcomes), None, None)[1],
        ended=_share_of("is_ended", outcomes),
        looped=_share_of("is_looped", outcomes),
        right=_share_of("is_right", judged) if judged else None,
        agreement=_agreement_with_ar([cell], results),
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
    """Return AR's outcomes with the same weights, prompts, limit and repetition penalty,
    or None.
    """
    for other, outcomes in results.items():
        if (
            other.settings.facts.is_reference
            and other.fingerprint == cell.fingerprint
            and other.checkpoint == cell.checkpoint
            and other.dtype == cell.dtype
            and other.prompts_id == cell.prompts_id
            and other.settings.max_new_tokens == cell.settings.max_new_tokens
            and other.settings.repetition_penalty == cell.settings.repetition_penalty
        ):
            return outcomes
    return None


def averages_table(averages: Sequence[Average], summaries: Sequence[Summary]) -> Table:
    natural = {
        (summary.cell.checkpoint, summary.cell.settings): summary.tpf
        for summary in summaries
        if summary.accuracy is None
    }
    columns: dict[str, Callable[[Average], str]] = {
        "method": _method,
        "accuracy %": lambda method: percent(method.accuracy),
        "against AR": lambda method: points(method.accuracy_change),
        "TPF": lambda method: number(method.tpf),
        "same as AR": lambda method: share(method.agreement),
        "natural TPF": lambda method: number(natural.get((method.checkpoint, method.settings))),
    }
    return Table.of("Average over the families, with 95 % intervals", averages, columns)


def families_table(summaries: Sequence[Summary]) -> Table:
    families = list(dict.fromkeys(summary.cell.family for summary in summaries))
    by_method: dict[str, dict[str, str]] = {}
    for summary in summaries:
        right = f"{summary.accuracy.value * 100:.0f} % · " if summary.accuracy else ""
        by_method.setdefault(_method(summary.cell), {})[summary.cell.family] = (
            f"{right}{summary.tpf.value:.2f}"
        )
    lines = tuple(
        (method, *(cells.get(family, NONE) for family in families))
        for method, cells in by_method.items()
    )
    return Table("Accuracy and TPF of each family", ("method", *families), lines)


def request_tables(figures: Sequence[RequestFigures]) -> list[Table]:
    if not figures:
        return []
    kinds = list(dict.fromkeys(kind for method in figures for kind in method.by_kind))
    lines = tuple(
        (
            _method(method),
            number(method.tpf),
            *(number(method.by_kind.get(kind)) for kind in kinds),
            share(method.agreement),
            f"{method.num_tokens:.0f}",
            share(method.ended),
            share(method.looped),
        )
        for method in figures
    )
    columns = ("method", "average", *kinds, "same as AR", "tokens", "ended", "loops cut")
    title = "Tokens per forward pass on open-ended requests, without loops, with 95 % intervals"
    rates = Table(title, columns, lines)
    drafting = [method for method in figures if len(method.by_place) > 1]
    if not drafting:
        return [rates]
    widest = max(len(method.by_place) for method in drafting)
    lines = tuple(
        (
            _method(method),
            *(f"{value:.0%}" for value in method.by_place),
            *[NONE] * (widest - len(method.by_place)),
        )
        for method in drafting
    )
    title = "Acceptance rate on open-ended requests, by position in the forward pass"
    return [rates, Table(title, ("method", *map(str, range(1, widest + 1))), lines)]


def kinds_table(figures: Sequence[KindFigures]) -> Table:
    columns: dict[str, Callable[[KindFigures], str]] = {
        "method": _method,
        "kind": lambda kind: kind.kind,
        "TPF": lambda kind: number(kind.tpf),
        "first mask": lambda kind: (
            NONE if kind.settings.facts.is_reference else share(kind.first_mask)
        ),
        "ended": lambda kind: share(kind.ended),
        "loops": lambda kind: share(kind.looped),
        "right": lambda kind: share(kind.right),
        "same as AR": lambda kind: share(kind.agreement),
    }
    return Table.of("Kinds of prompts, with 95 % intervals", figures, columns)


def _method(record: GridCell | Average | RequestFigures | KindFigures) -> str:
    return f"{record.checkpoint} · {describe(record.settings)}"
