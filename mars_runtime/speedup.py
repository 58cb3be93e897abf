"""Speedup of one run over another, and whether it can be reported.

It is the ratio of tokens per second of decoding, without prefill. A pass of MARS feeds what a pass
of AR feeds and masks as well, so it takes at least as long. The passes saved are therefore an upper
limit of the speedup. A ratio above the limit means that other work disturbed the machine: it is
never reported, and the run has to be measured again.

The browser chooses which two runs are compared, and at which forward. Therefore
``assets/web/core/speedup.js`` applies ``speedup`` to the totals and the ``spread`` in trace lines
(``derived.py``). It is tested on the cases in ``tests/web/speedups.json``; ``tools/wire_types.py``
copies the constants.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from mars_runtime import folds
from mars_runtime.derived import spread
from mars_runtime.events import Event
from mars_runtime.folds import MIN_TIMED_TOKENS

Kind = Literal["none", "short", "busy", "faster", "slower", "same"]
"""``none``: nothing was measured; ``short``: too few tokens; ``busy``: the ratio exceeds the passes
saved; ``faster``, ``slower``: the whole range is on that side of 1; ``same``: 1 is in the range."""

APART = 0.06
"""Relative difference of two runs on a quiet machine, however steady each of them was."""
NEAR = 1.1
"""Ratios up to here, either way, are "about as fast" where the range holds 1."""
SLACK = 1.02
"""A ratio above the limit by at most this factor counts as rounding and is cut to the limit."""

NOTES = {
    "short": f"too short to time: at least {MIN_TIMED_TOKENS} tokens are needed",
    "busy": "the machine was busy; measure again",
}
"""Why a speedup is not reported, by its kind."""


class Timed(NamedTuple):
    """The tokens of a run, and the seconds of each of its passes."""

    tokens: int
    seconds: Sequence[float]

    @property
    def rate(self) -> float:
        """Tokens per second; 0 if nothing was timed."""
        total = sum(self.seconds)
        return self.tokens / total if total else 0.0

    @property
    def spread(self) -> float:
        """Relative uncertainty of the mean pass time; NaN for fewer than two passes."""
        return spread(list(accumulate(self.seconds)))

    @property
    def per_pass(self) -> float:
        """Tokens per pass; 0 before the first one."""
        return self.tokens / len(self.seconds) if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Speedup:
    """A ratio with its 95 % range and its upper limit, the passes saved.

    ratio, low, high are NaN where nothing can be said (``none``, ``short``, ``busy``).
    """

    kind: Kind
    ratio: float
    low: float
    high: float
    limit: float

    @property
    def reported(self) -> float | None:
        """The ratio if it may be shown, else None."""
        return None if self.kind in ("none", "short", "busy") else self.ratio

    @property
    def note(self) -> str:
        """Why there is no ratio; empty if there is one."""
        return NOTES.get(self.kind, "")


def speedup(one: Timed, other: Timed, limit: float = math.inf) -> Speedup:
    """Compare two runs. limit: the ratio that the saved passes allow."""
    ratio = one.rate / other.rate if one.rate and other.rate else math.nan
    margin = math.hypot(one.spread, other.spread, APART)
    is_short = min(one.tokens, other.tokens) < MIN_TIMED_TOKENS or math.isnan(margin)
    return judged(ratio, ratio * math.exp(-margin), ratio * math.exp(margin), limit, is_short)


def repeated(rounds: Sequence[tuple[float, float]], *, is_short: bool = False) -> Speedup:
    """Compare two methods by rounds of (ratio, limit): the median, and the spread as its range."""
    ratios = [ratio for ratio, _ in rounds]
    if not ratios or not all(map(math.isfinite, ratios)):
        return judged(math.nan, math.nan, math.nan, math.inf, is_short)
    limit = statistics.median(limit for _, limit in rounds)
    return judged(statistics.median(ratios), min(ratios), max(ratios), limit, is_short)


def judged(ratio: float, low: float, high: float, limit: float, is_short: bool = False) -> Speedup:
    """Decide what may be reported of a measured ratio; a ratio above ``limit`` never is."""
    if not math.isfinite(ratio):
        return Speedup("none", math.nan, math.nan, math.nan, limit)
    if is_short:
        return Speedup("short", math.nan, math.nan, math.nan, limit)
    is_near = ratio < NEAR and ratio <= limit * NEAR
    if ratio > limit * SLACK and not is_near:
        return Speedup("busy", math.nan, math.nan, math.nan, limit)
    ratio, low, high = min(ratio, limit), min(low, limit), min(high, limit)
    kind: Kind = "faster" if low > 1 else "slower" if high < 1 else "same"
    return Speedup(kind, ratio, low, high, limit)


class Rounds:
    """Repetitions of a method, each paired with the repetition of another in the same turn."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self._pairs: list[tuple[float, float]] = []
        self._is_short = False

    def add(self, events: Sequence[Event], other: Sequence[Event] | None) -> None:
        """Add a repetition of any number of rows; ``other``: None without a comparison."""
        one = folds.totals(events)
        self.rates.append(one.tokens_per_second)
        if other is None:
            return
        two = folds.totals(other)
        is_timed = one.tokens_per_second and two.tokens_per_second
        ratio = one.tokens_per_second / two.tokens_per_second if is_timed else math.nan
        self._pairs.append((ratio, _saved(one, two) if _is_ar(other) else math.inf))
        self._is_short |= min(one.counted_tokens, two.counted_tokens) < MIN_TIMED_TOKENS

    @property
    def found(self) -> Speedup:
        """The median of the rounds with their spread."""
        return repeated(self._pairs, is_short=self._is_short)

    def plain(self) -> dict[str, Any]:
        """The speedup and the tokens per second as JSON, with null for NaN and infinity."""
        speedup = self.found
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


def _saved(one: folds.Totals, ar: folds.Totals) -> float:
    """Upper limit of the speedup of a batch over AR.

    The cost of a pass lies between one that does not depend on its rows and one in proportion to
    them, so the limit is the larger of the passes and the row-passes saved.
    """
    tokens = one.counted_tokens / ar.counted_tokens
    passes = ar.counted_forwards / one.counted_forwards
    return tokens * max(passes, ar.counted_row_forwards / one.counted_row_forwards)


def _is_ar(events: Sequence[Event]) -> bool:
    return all(row.settings.method == "ar" for step in folds.steps(events) for row in step.rows)


def run_speedup(events: Sequence[Event], other: Sequence[Event]) -> Speedup:
    """Compare two runs of one row each, up to loops of their texts.

    The passes saved limit the ratio if the other run is AR.
    """
    one, two = _timed(events), _timed(other)
    saved = one.per_pass / two.per_pass if _is_ar(other) and two.per_pass else math.inf
    return speedup(one, two, saved)


def _timed(events: Sequence[Event]) -> Timed:
    counted = folds.up_to_loop(events)
    return Timed(folds.num_tokens(counted), [step.seconds for step in folds.steps(counted)])
