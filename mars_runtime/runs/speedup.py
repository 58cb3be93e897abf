"""Compute the speedup of one run over another, and decide whether it can be reported.

The speedup is the ratio of tokens per second of decoding. A forward pass of MARS feeds the tokens
of an AR pass and masks in addition, so the ratio of tokens per pass is an upper limit. A ratio
above it means that other work disturbed the machine; it is never reported.

``assets/web/core/speedup.js`` implements ``speedup`` again, because the browser chooses the runs
and passes; both are tested on ``tests/web/speedups.json``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from mars_runtime.runs import folds
from mars_runtime.runs.annotations import spread
from mars_runtime.runs.events import Event
from mars_runtime.runs.folds import MIN_TIMED_TOKENS

Kind = Literal["none", "short", "different", "busy", "faster", "slower", "same"]
"""``short``: a run has too few tokens. ``different``: the runs wrote different texts.
``busy``: the speedup exceeds its limit, so the machine was busy. ``faster``,
``slower``: the whole range is above or below 1, also after rounding. ``same``: it contains 1.
"""

MIN_UNCERTAINTY = 0.06
"""Equal runs on a quiet machine differ by this much."""
NEAR_RATIO = 1.1
"""Up to this ratio, a range that contains 1 is "about as fast"."""
ROUNDING = 0.005
"""An end of a range that differs from 1 by less is displayed as 1.00."""
LIMIT_TOLERANCE = 1.02
"""Up to this factor above the limit, a ratio counts as rounding and is cut to the limit."""

NOTES = {
    "short": f"too short to time: at least {MIN_TIMED_TOKENS} tokens are needed",
    "different": "different texts are not compared in time",
    "busy": "the machine was too busy to time",
    "same": "no clear difference in time: passes vary in duration",
}


class Timed(NamedTuple):
    tokens: int
    seconds: Sequence[float]

    @property
    def rate(self) -> float:
        """Tokens per second; 0 if nothing was timed."""
        total = sum(self.seconds)
        return self.tokens / total if total else 0.0

    @property
    def spread(self) -> float:
        return spread(list(accumulate(self.seconds)))

    @property
    def per_pass(self) -> float:
        """Tokens per forward pass; 0 before the first one."""
        return self.tokens / len(self.seconds) if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Speedup:
    """A ratio of speeds with its 95 % range and its upper limit; NaN if there is none."""

    kind: Kind
    ratio: float
    low: float
    high: float
    limit: float

    @property
    def reported(self) -> float | None:
        return self.ratio if self.kind in ("faster", "slower") else None

    @property
    def note(self) -> str:
        """Why no ratio is shown, if one was measured."""
        return NOTES.get(self.kind, "")


def speedup(run: Timed, baseline: Timed, limit: float = math.inf) -> Speedup:
    ratio = run.rate / baseline.rate if run.rate and baseline.rate else math.nan
    margin = math.hypot(run.spread, baseline.spread, MIN_UNCERTAINTY)
    is_short = min(run.tokens, baseline.tokens) < MIN_TIMED_TOKENS or math.isnan(margin)
    return classify(ratio, ratio * math.exp(-margin), ratio * math.exp(margin), limit, is_short)


def repeated(rounds: Sequence[tuple[float, float]], *, is_short: bool = False) -> Speedup:
    """Return the median of (ratio, limit) pairs, with the smallest and the largest ratio as its
    range.
    """
    ratios = [ratio for ratio, _ in rounds]
    if not ratios or not all(map(math.isfinite, ratios)):
        return classify(math.nan, math.nan, math.nan, math.inf, is_short)
    limit = statistics.median(limit for _, limit in rounds)
    return classify(statistics.median(ratios), min(ratios), max(ratios), limit, is_short)


def classify(
    ratio: float, low: float, high: float, limit: float, is_short: bool = False
) -> Speedup:
    if not math.isfinite(ratio):
        return Speedup("none", math.nan, math.nan, math.nan, limit)
    if is_short:
        return Speedup("short", math.nan, math.nan, math.nan, limit)
    is_near = ratio < NEAR_RATIO and ratio <= limit * NEAR_RATIO
    if ratio > limit * LIMIT_TOLERANCE and not is_near:
        return Speedup("busy", math.nan, math.nan, math.nan, limit)
    ratio, low, high = min(ratio, limit), min(low, limit), min(high, limit)
    kind: Kind = "faster" if low > 1 + ROUNDING else "slower" if high < 1 - ROUNDING else "same"
    return Speedup(kind, ratio, low, high, limit)


def passes_result(
    tokens: int, forwards: int, baseline: int, name: str, differs_at: int | None
) -> str:
    """Return the result of two finished runs in passes, as ``assets/web/core/result.js`` does. If
    their texts differ, the passes of one do not stand for those of the other.

    differs_at: index of the first token that differs from the baseline ``name``, or None.
    """
    if differs_at is not None:
        per_pass = Decimal(tokens / max(1, forwards)).quantize(Decimal("0.01"), ROUND_HALF_UP)
        first = f"{per_pass} tokens per pass"
        return f"{first}; the text differs from {name}'s from token {differs_at + 1:,} on"
    if forwards == baseline:
        return f"As many passes as {name} ({baseline:,}), same text"
    return (
        f"{forwards:,} {'pass' if forwards == 1 else 'passes'} instead of {baseline:,}, same text"
    )


class Rounds:
    def __init__(self) -> None:
        self.rates: list[float] = []
        self._pairs: list[tuple[float, float]] = []
        self._is_short = False

    def add(self, events: Sequence[Event], other: Sequence[Event] | None) -> None:
        totals = folds.totals(events)
        self.rates.append(totals.tokens_per_second)
        if other is None:
            return
        baseline = folds.totals(other)
        is_timed = totals.tokens_per_second and baseline.tokens_per_second
        ratio = totals.tokens_per_second / baseline.tokens_per_second if is_timed else math.nan
        self._pairs.append((ratio, _limit(totals, baseline) if _is_ar(other) else math.inf))
        self._is_short |= min(totals.counted_tokens, baseline.counted_tokens) < MIN_TIMED_TOKENS

    @property
    def speedup(self) -> Speedup:
        return repeated(self._pairs, is_short=self._is_short)

    def plain(self) -> dict[str, Any]:
        """Return JSON values; None replaces NaN and infinity."""
        speedup = self.speedup
        numbers = {
            "ratio": speedup.ratio,
            "low": speedup.low,
            "high": speedup.high,
            "limit": speedup.limit,
        }
        rate = (statistics.median(self.rates), min(self.rates), max(self.rates))
        return {
            "kind": speedup.kind,
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "rounds": len(self.rates),
            "rate": rate,
        }


def _limit(batch: folds.Totals, ar: folds.Totals) -> float:
    """Return the larger of the ratios of tokens per pass and of tokens per row-forward, because the
    cost of a pass is somewhere between constant and proportional to its rows.
    """
    tokens = batch.counted_tokens / ar.counted_tokens
    passes = ar.counted_forwards / batch.counted_forwards
    return tokens * max(passes, ar.counted_row_forwards / batch.counted_row_forwards)


def _is_ar(events: Sequence[Event]) -> bool:
    return all(row.settings.method == "ar" for step in folds.steps(events) for row in step.rows)


def run_speedup(events: Sequence[Event], other: Sequence[Event]) -> Speedup:
    """Compare two runs of one row each, without the loops at the end of their texts. If ``other``
    is an AR run, the ratio of tokens per forward pass is the upper limit. Different texts have no
    speedup.
    """
    if folds.differs_at(events, other) is not None:
        return Speedup("different", math.nan, math.nan, math.nan, math.inf)
    run, baseline = _timed(events), _timed(other)
    has_limit = _is_ar(other) and baseline.per_pass
    return speedup(run, baseline, run.per_pass / baseline.per_pass if has_limit else math.inf)


def _timed(events: Sequence[Event]) -> Timed:
    counted = folds.up_to_loop(events)
    return Timed(folds.num_tokens(counted), [step.seconds for step in folds.steps(counted)])
