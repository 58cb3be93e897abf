"""Derived fields of trace lines: what the page draws of a forward and would otherwise compute.

``TraceWriter`` adds them to the row of each step. A line that was sent never changes, so each field
covers the run up to its line only. Readers ignore the fields and derive them again when they write.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypedDict

from mars_runtime.events import RowStep
from mars_runtime.loops import find_loop
from mars_runtime.methods import Method

Source = Literal["ar", "masks", "look-up", "draft model", "guesses"]
"""The source of a token.

``ar``: the slot that AR itself reads; ``masks``; ``look-up``: prompt lookup; ``draft model``; or
``guesses``: those of Jacobi decoding.
"""
LETTERS: dict[Source, str] = {
    "ar": "a",
    "masks": "m",
    "look-up": "l",
    "draft model": "d",
    "guesses": "g",
}
"""Letters for sources in a trace line."""

UNDRAFTED: frozenset[Method] = frozenset({"ar", "block_diffusion"})
"""Methods without drafts: every token is the model's own."""

PARTS = 8
"""Number of parts of a run for the comparison of mean pass times."""
STUDENT_T = (12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36)
"""Quantiles of Student's t at 95 %, for 1 to 7 degrees of freedom."""


class Derived(TypedDict, total=False):
    """Fields of a row in a step's line; each is written only if it is not empty.

    sources: a letter for each accepted token, absent if all are AR's own. loop: tokens before the
    loop and tokens up to its evidence, once, in the step that completes the evidence. spread:
    relative uncertainty of the mean pass time so far, from the second step on.
    """

    sources: str
    loop: tuple[int, int]
    spread: float


class DerivedFold:
    """Fold of one row's steps into the derived fields of their lines."""

    def __init__(self) -> None:
        self._before: RowStep | None = None
        self._tokens: list[int] = []
        self._clocks: list[float] = []
        self._has_loop = False

    def add(self, step: RowStep, seconds: float) -> Derived:
        """Return the fields of the row's next step, which took ``seconds``."""
        derived: Derived = {}
        sources = step_sources(step, self._before)
        if any(source != "ar" for source in sources):
            derived["sources"] = "".join(map(LETTERS.__getitem__, sources))
        first = len(self._tokens)
        self._tokens.extend(step.accepted)
        loop = None if self._has_loop else find_loop(self._tokens, first)
        if loop is not None:
            self._has_loop = True
            derived["loop"] = (loop.kept, loop.end)
        self._clocks.append(seconds + (self._clocks[-1] if self._clocks else 0.0))
        if not math.isnan(uncertainty := spread(self._clocks)):
            derived["spread"] = uncertainty
        self._before = step
        return derived


def drafted(step: RowStep, waiting: int) -> int:
    """Return how many drafts a forward judged, given how many awaited verification before it."""
    if step.settings.method in UNDRAFTED:
        return 0
    if step.settings.is_verified:
        return min(waiting, step.num_pending - 1)
    return len(step.proposals) - 1


def step_sources(step: RowStep, before: RowStep | None) -> tuple[Source, ...]:
    """Return the sources of the tokens of a forward. ``before``: the forward that drafted them.

    A verified token is a draft that AR confirmed, or AR's own. Without verification the first one
    is AR's own. In block diffusion all are from masks.
    """
    method, count = step.settings.method, len(step.accepted)
    masks: Source = "masks"
    by_masks = (masks,) * count
    if method == "block_diffusion":
        return by_masks
    if method == "ar" or not step.settings.is_verified:
        return ("ar", *by_masks)[:count]
    drafts = before.drafts if before is not None else ()
    judged = drafts[: drafted(step, len(drafts))]
    sources: list[Source] = ["ar"] * count
    for place, (token, draft) in enumerate(zip(step.accepted, judged, strict=False)):
        if token != draft or before is None:
            break
        sources[place] = _drafter(before, place)
    return tuple(sources)


def _drafter(step: RowStep, place: int) -> Source:
    """Return the source of the draft at ``place`` among those that await verification after a
    step."""
    if step.settings.method == "jacobi":
        return "guesses"
    if place >= len(step.drafts) - len(step.guessed):
        return "draft model"
    return "look-up" if step.looked_up else "masks"


def spread(clocks: Sequence[float]) -> float:
    """Return the relative half width of the interval of the seconds per pass, to six decimals.

    clocks: seconds from the first pass to the end of each. NaN for fewer than two passes.
    """
    num = min(PARTS, len(clocks))
    if num < 2 or not clocks[-1]:
        return math.nan
    ends = [place * len(clocks) // num for place in range(num + 1)]
    at = [0.0, *(clocks[end - 1] for end in ends[1:])]
    means = [
        (later - earlier) / (b - a)
        for (earlier, later), (a, b) in zip(pairwise(at), pairwise(ends), strict=True)
    ]
    centre = sum(means) / num
    variance = sum((mean - centre) ** 2 for mean in means) / (num - 1)
    return round(STUDENT_T[num - 2] * math.sqrt(variance / num) / centre, 6)
