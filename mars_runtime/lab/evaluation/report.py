"""From outcomes to figures and their tables: a summary of each cell, averages over the families,
and what open requests say, which have no right answer.

Pure folds; knows neither terminal nor file. Natural text is summarised beside the families and
stays out of every average; so do open requests. A way that promises AR's text is held against
AR's, token for token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime import statistics, tasks
from mars_runtime.lab.evaluation.grid import GridCell
from mars_runtime.lab.evaluation.measure import Outcome, survival
from mars_runtime.lab.tables import NONE, Table, number, percent, points, share
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.statistics import Estimate

Results = Mapping[GridCell, Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one cell.

    accuracy: share right (Wilson), None where nothing can be judged.
    tpf: mean over rows of tokens / forwards; tpf_pooled: all tokens / all forwards.
    agreement: share of prompts with the very tokens AR gave on the same weights, None without AR.
    ended: share of rows that reached EOS within the limit.
    """

    cell: GridCell
    accuracy: Estimate | None
    tpf: Estimate
    tpf_pooled: Estimate
    agreement: float | None
    ended: float
    num_tokens: int
    num_forwards: int


@dataclass(frozen=True, slots=True)
class Average:
    """One way of decoding over the families: each family counts alike, natural text is left out.

    accuracy_change: accuracy minus that of AR on the same weights and prompts, prompt by prompt;
        None for AR itself.
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
    """One way of decoding over the kinds of requests, repetitions cut off.

    tpf: tokens per forward, kinds count alike; by_kind: of each. agreement: share of answers with
    the very tokens of AR, None without AR. num_tokens: of an answer, on average. ended, looped:
    shares of answers that ended by themselves and that were cut. by_place: of the forwards that
    offered so many tokens, the share that gave them.
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
    """One way of decoding on one kind of prompts: what breaks first where they are unlike the
    training data. Agreement with AR is no quality, so AR itself is judged too.

    tpf: tokens per forward, loops cut off. first_mask: of the forwards that offered a second token
    the share that gave it, None where none did. ended, looped: shares of answers. right: share of
    those that have a right word and hold it, None where no answer has one. agreement: share with
    the very tokens of AR.
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
    """Every figure as plain values; shares from 0 to 1."""
    kinds = kind_figures(results)
    return {
        "averages": [asdict(one) for one in average(results)],
        "cells": [asdict(one) for one in summarise(results)],
        "requests": [asdict(one) for one in request_figures(results)],
        **({"kinds": [asdict(one) for one in kinds]} if kinds else {}),
    }


def tables(results: Results) -> Iterator[Table]:
    """Averages and families, where there are any; requests and kinds."""
    judged = {cell: own for cell, own in results.items() if not tasks.is_open(cell.family)}
    if judged:
        summaries = summarise(judged)
        yield averages_table(average(judged), summaries)
        yield families_table(summaries)
    yield from request_tables(request_figures(results))
    if kinds := kind_figures(results):
        yield kinds_table(kinds)


def summarise(results: Results) -> list[Summary]:
    """A summary for each cell, in order."""
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
        tpf_pooled=statistics.ratio_of_sums(tokens, forwards),
        agreement=_agreement_with_ar([cell], results),
        ended=_share_of("is_ended", outcomes),
        num_tokens=sum(tokens),
        num_forwards=sum(forwards),
    )


def average(results: Results) -> list[Average]:
    """One average for each checkpoint and settings that judged at least one family, in order."""
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
    if cells[0].settings.method != "ar" and all(twin is not None for twin in ar):
        twins = [[float(o.is_right is True) for o in twin or ()] for twin in ar]
        change = statistics.mean_of_means(
            [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(right, twins, strict=True)]
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
    """Figures of each checkpoint and settings that answered requests, in order."""
    ways: dict[tuple[str, str, str, DecodeSettings], list[GridCell]] = {}
    for cell in results:
        if tasks.is_open(cell.family):
            key = (cell.checkpoint, cell.fingerprint, cell.dtype, cell.settings)
            ways.setdefault(key, []).append(cell)
    return [_request_figures(cells, results) for cells in ways.values()]


def _request_figures(cells: Sequence[GridCell], results: Results) -> RequestFigures:
    rates = {cell.family: _rates(results[cell]) for cell in cells}
    every = [outcome for cell in cells for outcome in results[cell]]
    return RequestFigures(
        checkpoint=cells[0].checkpoint,
        settings=cells[0].settings,
        tpf=statistics.mean_of_means(list(rates.values())),
        by_kind={kind: statistics.mean(own) for kind, own in rates.items()},
        agreement=_agreement_with_ar(cells, results),
        num_tokens=sum(one.num_tokens for one in every) / len(every),
        ended=_share_of("is_ended", every),
        looped=_share_of("is_looped", every),
        by_place=tuple(_by_place(every)),
    )


def kind_figures(results: Results) -> list[KindFigures]:
    """Of every open cell, in order, where any of them is unlike the training data; else none."""
    cells = [cell for cell in results if tasks.is_open(cell.family)]
    if not any(cell.family in tasks.SHIFTED for cell in cells):
        return []
    return [_kind_figures(cell, results) for cell in cells]


def _kind_figures(cell: GridCell, results: Results) -> KindFigures:
    outcomes = results[cell]
    judged = [one for one in outcomes if one.is_right is not None]
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
    """Share of all prompts of ``cells`` whose output is AR's, None where AR was not measured."""
    same = [
        one.output_id == other.output_id
        for cell in cells
        if (ar := _ar_of(cell, results)) is not None
        for one, other in zip(results[cell], ar, strict=True)
    ]
    return sum(same) / len(same) if same else None


def _is_judged(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome.is_right is not None for outcome in outcomes)


def _ar_of(cell: GridCell, results: Results) -> Sequence[Outcome] | None:
    """AR's outcomes on the same weights, prompts and limit, with the same penalty."""
    for other, outcomes in results.items():
        if (
            other.settings.method == "ar"
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
    """One line a way of decoding: the families' averages and natural text beside them."""
    natural = {
        (one.cell.checkpoint, one.cell.settings): one.tpf
        for one in summaries
        if one.accuracy is None
    }
    columns: dict[str, Callable[[Average], str]] = {
        "way": _way,
        "accuracy %": lambda one: percent(one.accuracy),
        "against AR": lambda one: points(one.accuracy_change),
        "TPF": lambda one: number(one.tpf),
        "same as AR": lambda one: share(one.agreement),
        "natural TPF": lambda one: number(natural.get((one.checkpoint, one.settings))),
    }
    return Table.of("Average over the families, with 95 % intervals", averages, columns)


def families_table(summaries: Sequence[Summary]) -> Table:
    """One line per way of decoding, one column per family: accuracy and tokens per forward."""
    families = list(dict.fromkeys(one.cell.family for one in summaries))
    ways: dict[str, dict[str, str]] = {}
    for one in summaries:
        right = f"{one.accuracy.value * 100:.0f} % · " if one.accuracy else ""
        ways.setdefault(_way(one.cell), {})[one.cell.family] = f"{right}{one.tpf.value:.2f}"
    lines = tuple(
        (way, *(found.get(family, NONE) for family in families)) for way, found in ways.items()
    )
    return Table("Accuracy and TPF of each family", ("way", *families), lines)


def request_tables(found: Sequence[RequestFigures]) -> list[Table]:
    """Tokens per forward by kind, then acceptance by place; nothing where nothing was asked."""
    if not found:
        return []
    kinds = list(dict.fromkeys(kind for one in found for kind in one.by_kind))
    lines = tuple(
        (
            _way(one),
            number(one.tpf),
            *(number(one.by_kind.get(kind)) for kind in kinds),
            share(one.agreement),
            f"{one.num_tokens:.0f}",
            share(one.ended),
            share(one.looped),
        )
        for one in found
    )
    columns = ("way", "average", *kinds, "same as AR", "tokens", "ended", "loops cut")
    title = "Tokens per forward on open requests, loops cut, with 95 % intervals"
    rates = Table(title, columns, lines)
    drafting = [one for one in found if len(one.by_place) > 1]
    if not drafting:
        return [rates]
    widest = max(len(one.by_place) for one in drafting)
    lines = tuple(
        (
            _way(one),
            *(f"{value:.0%}" for value in one.by_place),
            *[NONE] * (widest - len(one.by_place)),
        )
        for one in drafting
    )
    title = "Open requests: of forwards that offered so many tokens, the share that gave them"
    return [rates, Table(title, ("way", *map(str, range(1, widest + 1))), lines)]


def kinds_table(found: Sequence[KindFigures]) -> Table:
    """A line for each way and kind."""
    columns: dict[str, Callable[[KindFigures], str]] = {
        "way": _way,
        "kind": lambda one: one.kind,
        "TPF": lambda one: number(one.tpf),
        "first mask": lambda one: NONE if one.settings.method == "ar" else share(one.first_mask),
        "ended": lambda one: share(one.ended),
        "loops": lambda one: share(one.looped),
        "right": lambda one: share(one.right),
        "same as AR": lambda one: share(one.agreement),
    }
    return Table.of("Kinds of prompts, with 95 % intervals", found, columns)


def _way(one: GridCell | Average | RequestFigures | KindFigures) -> str:
    return f"{one.checkpoint} · {describe(one.settings)}"
