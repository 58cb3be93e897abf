"""Kinds of prompts side by side: what breaks first where they are unlike the training data.

Pure folds over outcomes. Agreement with AR is no quality, so AR itself is judged too: answers that
ended, that went into a repetition loop, that hold a right word.
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
class KindFigures:
    """One way of decoding on one kind of prompts.

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


def kind_figures(results: Results) -> list[KindFigures]:
    """Of every open cell, in order, where any of them is unlike the training data; else none."""
    cells = [cell for cell in results if tasks.is_open(cell.family)]
    if not any(cell.family in tasks.SHIFTED for cell in cells):
        return []
    return [_figures(cell, results) for cell in cells]


def _figures(cell: Cell, results: Results) -> KindFigures:
    outcomes = results[cell]
    judged = [one.is_right for one in outcomes if one.is_right is not None]
    return KindFigures(
        checkpoint=cell.checkpoint,
        settings=cell.settings,
        kind=cell.family,
        tpf=statistics.mean([one.tokens_per_forward for one in outcomes]),
        first_mask=_first_mask(outcomes),
        ended=sum(one.is_ended for one in outcomes) / len(outcomes),
        looped=sum(one.is_looped for one in outcomes) / len(outcomes),
        right=sum(judged) / len(judged) if judged else None,
        agreement=agreement_with_ar([cell], results),
    )


def _first_mask(outcomes: Sequence[Outcome]) -> float | None:
    pairs = [pair for one in outcomes for pair in zip(one.taken, one.offered, strict=True)]
    return (*survival(pairs), None, None)[1]


def kinds_table(found: Sequence[KindFigures]) -> Table:
    """A line for each way and kind."""
    columns = ("way", "kind", "TPF", "first mask", "ended", "loops", "right", "same as AR")
    lines = tuple(
        (
            f"{one.checkpoint} · {describe(one.settings)}",
            one.kind,
            number(one.tpf),
            NONE if one.settings.method == "ar" else share(one.first_mask),
            share(one.ended),
            share(one.looped),
            share(one.right),
            share(one.agreement),
        )
        for one in found
    )
    return Table("Kinds of prompts, with 95 % intervals", columns, lines)


def kinds_json(found: Sequence[KindFigures]) -> list[dict[str, Any]]:
    """The figures as plain values."""
    return [asdict(one) for one in found]
