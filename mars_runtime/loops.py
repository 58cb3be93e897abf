"""Where a text begins to repeat itself: pure functions of token ids.

Tokens are looked at one by one, in their order, so that it does not matter how many of them a
forward gave. A loop has to go on long enough to be none of the refrains, tables and listings that
people write; ``tools/human_loops.py`` counts those that are taken for one all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_PERIOD = 64
MIN_REPEATED = 48


class Loop(NamedTuple):
    """kept: tokens up to the end of the first copy of what then repeats. end: tokens up to the one
    by which that was plain."""

    kept: int
    end: int


def num_repeated(period: int) -> int:
    """Tokens that repeat what stood one period earlier before it counts as a loop: one period and a
    half, so that a long sentence must come twice and half again, and a single token 49 times."""
    return max(MIN_REPEATED, period + period // 2)


def find_loop(ids: Sequence[int], first: int = 0) -> Loop | None:
    """The first loop that is plain behind the first ``first`` tokens of a text, None where there is
    none."""
    for end in range(first + 1, len(ids) + 1):
        last = ids[end - 1]
        if last not in ids[max(0, end - 1 - MAX_PERIOD) : end - 1]:
            continue  # often, and sooner found than by one period after the other
        for period in range(1, min(MAX_PERIOD, end // 2) + 1):
            if ids[end - 1 - period] != last:
                continue
            start = end - num_repeated(period)
            if start >= period and ids[start:end] == ids[start - period : end - period]:
                return Loop(start, end)
    return None


def up_to_loop(written: Sequence[int], new: Sequence[int]) -> int | None:
    """How many of the tokens that come behind those ``written`` leave before the text ends for
    repeating itself, None where all do and it goes on."""
    behind = written[-MAX_PERIOD - num_repeated(MAX_PERIOD) :]
    loop = find_loop([*behind, *new], len(behind))
    return None if loop is None else loop.end - len(behind)
