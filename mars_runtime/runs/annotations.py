"""Compute the annotations of trace lines, which the page needs to draw a forward pass.

A line is never changed after it is sent, so they describe the run up to that line. Readers ignore
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypedDict

from mars_runtime.decoders.methods import Source
from mars_runtime.runs.events import RowStep
from mars_runtime.runs.loops import find_loop

LETTERS: dict[Source, str] = {
    "ar": "a",
    "masks": "m",
    "look-up": "l",
    "draft model": "d",
    "guesses": "g",
}

MIN_SECONDS = 1e-12  # of all passes together; less has no meaningful mean
NUM_PARTS = 8
"""``spread`` compares the mean pass times of this many parts of a run."""
STUDENT_T = (12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36)
"""Quantiles of Student's t at 95 %, for 1 to 7 degrees of freedom."""


class Annotations(TypedDict, total=False):
    """Of one row in a step's trace line. Fields without a value are left out.

    - sources: a letter per accepted token; left out if all tokens are AR's own.
    - loop: the number of tokens before a repetition loop, and that of the tokens that proved it.
      Written once.
    - spread: relative uncertainty of the mean pass time so far.
    """

    sources: str
    loop: tuple[int, int]
    spread: float


class AnnotationFold:
    def __init__(self) -> None:
        self._before: RowStep | None = None
        self._tokens: list[int] = []
        self._clocks: list[float] = []
        self._has_loop = False

    def add(self, step: RowStep, seconds: float) -> Annotations:
        annotations: Annotations = {}
        sources = step_sources(step, self._before)
        if any(source != "ar" for source in sources):
            annotations["sources"] = "".join(map(LETTERS.__getitem__, sources))
        first = len(self._tokens)
        self._tokens.extend(step.accepted)
        loop = None if self._has_loop else find_loop(self._tokens, first)
        if loop is not None:
            self._has_loop = True
            annotations["loop"] = (loop.kept, loop.end)
        self._clocks.append(seconds + (self._clocks[-1] if self._clocks else 0.0))
        if not math.isnan(uncertainty := spread(self._clocks)):
            annotations["spread"] = uncertainty
        self._before = step
        return annotations


def drafted(step: RowStep, waiting: int) -> int:
    """Return how many of the ``waiting`` drafts a forward pass verified."""
    if step.settings.facts.is_alone:
        return 0
    if step.settings.is_verified:
        return min(waiting, step.num_pending - 1)
    return len(step.proposals) - 1


def step_drafting(step: RowStep, before: RowStep | None) -> tuple[int, int]:
    """Return how many drafts a forward pass verified, and how many of them it accepted: emitted
    tokens whose source is not ``ar``. Without verification, each proposal except the first is a
    draft.
    """
    num_drafted = drafted(step, len(before.drafts) if before is not None else 0)
    sources = step_sources(step, before) if num_drafted else ()
    return num_drafted, sum(source != "ar" for source in sources)


def step_sources(step: RowStep, before: RowStep | None) -> tuple[Source, ...]:
    method, count = step.settings.facts, len(step.accepted)
    if not step.settings.is_verified:
        return tuple(method.source(index) for index in range(count))
    drafts = before.drafts if before is not None else ()
    judged = drafts[: drafted(step, len(drafts))]
    sources: list[Source] = ["ar"] * count
    for index, (token, draft) in enumerate(zip(step.accepted, judged, strict=False)):
        if token != draft or before is None:
            break
        sources[index] = _draft_source(before, index)
    return tuple(sources)


def _draft_source(step: RowStep, index: int) -> Source:
    is_guessed = index >= len(step.drafts) - len(step.guessed)
    method = step.settings.facts
    return method.draft_source(is_guessed=is_guessed, is_looked_up=bool(step.looked_up))


def spread(clocks: Sequence[float]) -> float:
    """Return half the width of the 95 % interval of the mean pass time, relative to the mean; NaN
    for fewer than two passes.

    clocks: the time at the end of each pass, in seconds since the start of the first one.
    """
    num = min(NUM_PARTS, len(clocks))
    if num < 2 or clocks[-1] < MIN_SECONDS:
        return math.nan
    ends = [part * len(clocks) // num for part in range(num + 1)]
    at = [0.0, *(clocks[end - 1] for end in ends[1:])]
    means = [
        (later - earlier) / (b - a)
        for (earlier, later), (a, b) in zip(pairwise(at), pairwise(ends), strict=True)
    ]
    centre = sum(means) / num
    variance = sum((mean - centre) ** 2 for mean in means) / (num - 1)
    return round(STUDENT_T[num - 2] * math.sqrt(variance / num) / centre, 6)
