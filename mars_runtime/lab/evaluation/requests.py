"""What open requests say of a way of decoding: tokens per forward by kind and by place.

Pure folds over outcomes and tables of them. Requests have no right answer, so nothing here is about
accuracy; a way that promises AR's text is held against AR's, token for token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime import statistics, tasks
from mars_runtime.lab.evaluation.measure import Outcome, survival
from mars_runtime.lab.evaluation.plan import Cell
from mars_runtime.lab.evaluation.report import Results, agreement_with_ar
from mars_runtime.lab.evaluation.tables import NONE, Table, number, share
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.statistics import Estimate


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One way of decoding over the kinds of requests, repetitions cut off.

    tpf: tokens per forward, kinds count alike; by_kind: of each. agreement: share of answers with
    the very tokens of AR, None without AR. looped: share that was cut. by_place: of the forwards
    that offered so many tokens, the share that gave them.
    """

    checkpoint: str
    settings: DecodeSettings
    tpf: Estimate
    by_kind: dict[str, Estimate]
    agreement: float | None
    looped: float
    by_place: tuple[float, ...]


def request_figures(results: Results) -> list[RequestFigures]:
    """Figures of each checkpoint and settings that answered requests, in order."""
    ways: dict[tuple[str, str, str, DecodeSettings], list[Cell]] = {}
    for cell in results:
        if tasks.is_open(cell.family):
            key = (cell.checkpoint, cell.fingerprint, cell.dtype, cell.settings)
            ways.setdefault(key, []).append(cell)
    return [_figures(cells, results) for cells in ways.values()]


def _figures(cells: Sequence[Cell], results: Results) -> RequestFigures:
    groups = [results[cell] for cell in cells]
    rates = [[outcome.tokens_per_forward for outcome in group] for group in groups]
    every = [outcome for group in groups for outcome in group]
    return RequestFigures(
        checkpoint=cells[0].checkpoint,
        settings=cells[0].settings,
        tpf=statistics.mean_of_means(rates),
        by_kind={cell.family: statistics.mean(own) for cell, own in zip(cells, rates, strict=True)},
        agreement=agreement_with_ar(cells, results),
        looped=sum(outcome.is_looped for outcome in every) / len(every),
        by_place=tuple(survival(_forwards(every))),
    )


def _forwards(outcomes: Sequence[Outcome]) -> list[tuple[int, int]]:
    return [
        forward
        for outcome in outcomes
        for forward in zip(outcome.taken, outcome.offered, strict=True)
    ]


def request_tables(found: Sequence[RequestFigures]) -> list[Table]:
    """Tokens per forward by kind, then acceptance by place; nothing where nothing was asked."""
    if not found:
        return []
    kinds = list(dict.fromkeys(kind for one in found for kind in one.by_kind))
    lines = [
        (
            f"{one.checkpoint} · {describe(one.settings)}",
            number(one.tpf),
            *(number(one.by_kind.get(kind)) for kind in kinds),
            share(one.agreement),
            share(one.looped),
        )
        for one in found
    ]
    columns = ("way", "average", *kinds, "same as AR", "loops cut")
    title = "Tokens per forward on open requests, loops cut, with 95 % intervals"
    places = _places_table(found)
    return [Table(title, columns, tuple(lines)), *([places] if places.lines else [])]


def _places_table(found: Sequence[RequestFigures]) -> Table:
    drafting = [one for one in found if len(one.by_place) > 1]
    widest = max((len(one.by_place) for one in drafting), default=0)
    lines = [
        (
            f"{one.checkpoint} · {describe(one.settings)}",
            *(f"{value:.0%}" for value in one.by_place),
            *[NONE] * (widest - len(one.by_place)),
        )
        for one in drafting
    ]
    title = "Open requests: of forwards that offered so many tokens, the share that gave them"
    return Table(title, ("way", *map(str, range(1, widest + 1))), tuple(lines))


def requests_json(found: Sequence[RequestFigures]) -> list[dict[str, Any]]:
    """The figures as plain values."""
    return [asdict(one) for one in found]
