"""Folds that only tests need: the reference for the page's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mars_runtime.runs import folds
from mars_runtime.runs.annotations import Source
from mars_runtime.runs.events import Event


def passes_saved(events: Sequence[Event], row: int = 0) -> Counter[Source]:
    """Return how many forwards were saved compared with one per token, by source, up to a loop.

    One token of each forward is not credited to a source: AR's own, or the last one if all came
    from drafts.
    """
    saved: Counter[Source] = Counter()
    for source in folds.sources(folds.up_to_loop(events, row), row):
        thanked = list(source)
        if "ar" in thanked:
            thanked.remove("ar")
        elif thanked:
            thanked.pop()
        else:
            saved["masks"] -= 1  # block diffusion: a forward that emitted nothing
        saved.update(thanked)
    return saved
