"""From outcomes to figures: one summary a cell, one average a way of decoding.

Pure folds; knows neither terminal nor file. Natural text is summarised beside the families and
stays out of every average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mars_runtime import statistics
from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.plan import Cell
from mars_runtime.settings import DecodeSettings
from mars_runtime.statistics import Estimate

Results = Mapping[Cell, Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one cell.

    accuracy: share right (Wilson), None where nothing can be judged.
    tpf: mean over rows of tokens / forwards; tpf_pooled: all tokens / all forwards.
    agreement: share of prompts with the very tokens AR gave on the same weights, None without AR.
    ended: share of rows that reached EOS within the limit.
    """

    cell: Cell
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


def summarise(results: Results) -> list[Summary]:
    """A summary for each cell, in order."""
    return [_summary(cell, outcomes, _ar_of(cell, results)) for cell, outcomes in results.items()]


def average(results: Results) -> list[Average]:
    """One average for each checkpoint and settings that judged at least one family, in order."""
    groups: dict[tuple[str, str, DecodeSettings], list[Cell]] = {}
    for cell, outcomes in results.items():
        if _is_judged(outcomes):
            groups.setdefault((cell.checkpoint, cell.fingerprint, cell.settings), []).append(cell)
    return [_average(cells, results) for cells in groups.values()]


def _summary(cell: Cell, outcomes: Sequence[Outcome], ar: Sequence[Outcome] | None) -> Summary:
    tokens = [outcome.num_tokens for outcome in outcomes]
    forwards = [outcome.num_forwards for outcome in outcomes]
    accuracy = None
    if _is_judged(outcomes):
        accuracy = statistics.wilson(sum(o.is_right is True for o in outcomes), len(outcomes))
    return Summary(
        cell=cell,
        accuracy=accuracy,
        tpf=statistics.mean([outcome.tokens_per_forward for outcome in outcomes]),
        tpf_pooled=statistics.ratio_of_sums(tokens, forwards),
        agreement=_agreement([outcomes], [ar]),
        ended=sum(outcome.is_ended for outcome in outcomes) / len(outcomes),
        num_tokens=sum(tokens),
        num_forwards=sum(forwards),
    )


def _average(cells: Sequence[Cell], results: Results) -> Average:
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
        tpf=statistics.mean_of_means([[o.tokens_per_forward for o in group] for group in groups]),
        agreement=_agreement(groups, ar),
    )


def agreement_with_ar(cells: Sequence[Cell], results: Results) -> float | None:
    """Share of all prompts of ``cells`` whose output is AR's, None where AR was not measured."""
    return _agreement([results[cell] for cell in cells], [_ar_of(cell, results) for cell in cells])


def _agreement(
    groups: Sequence[Sequence[Outcome]], ar: Sequence[Sequence[Outcome] | None]
) -> float | None:
    """Share of all prompts whose output is AR's, None where AR was not measured."""
    pairs = [
        (one.output_id, other.output_id)
        for group, twin in zip(groups, ar, strict=True)
        if twin is not None
        for one, other in zip(group, twin, strict=True)
    ]
    return sum(one == other for one, other in pairs) / len(pairs) if pairs else None


def _is_judged(outcomes: Sequence[Outcome]) -> bool:
    return all(outcome.is_right is not None for outcome in outcomes)


def _ar_of(cell: Cell, results: Results) -> Sequence[Outcome] | None:
    """AR's outcomes on the same weights, prompts and limit."""
    for other, outcomes in results.items():
        if (
            other.settings.method == "ar"
            and other.fingerprint == cell.fingerprint
            and other.checkpoint == cell.checkpoint
            and other.dtype == cell.dtype
            and other.prompts_id == cell.prompts_id
            and other.settings.max_new_tokens == cell.settings.max_new_tokens
        ):
            return outcomes
    return None
