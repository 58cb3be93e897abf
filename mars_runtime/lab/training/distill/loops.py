"""Where a text begins to repeat itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAX_PERIOD = 64
MIN_REPEATED = 24
"""Tokens that repeat what stood one period earlier before it counts as a loop; one period at
least, so that a long sentence must come twice and a single token 25 times."""


def find_loop(ids: Sequence[int]) -> int | None:
    """Length of the text without its first repetition loop, or None where there is none.

    What is kept ends with the first copy of what then repeats.
    """
    ends: list[int] = []
    array = np.asarray(ids)
    for period in range(1, min(MAX_PERIOD, len(ids) // 2) + 1):
        needed = max(MIN_REPEATED, period)
        if np.count_nonzero(array[period:] == array[:-period]) < needed:
            continue  # almost always, and much faster than to look one by one
        run = 0
        for at in range(period, len(ids)):
            run = run + 1 if ids[at] == ids[at - period] else 0
            if run >= needed:
                ends.append(at + 1 - run)
                break
    return min(ends, default=None)
