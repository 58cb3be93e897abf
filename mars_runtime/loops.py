"""Where a text begins to repeat itself: pure functions of token ids.

A text is in a loop where the same tokens come again and again, or where nearly all that it still
says it has said before: stanzas that come back with a word changed. Tokens are looked at one by
one, in their order, so that it does not matter how many of them a forward gave. A loop has to go on
long enough to be none of the refrains, tables and listings that people write;
``tools/human_loops.py`` counts those that are taken for one all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

MAX_PERIOD = 64
MIN_REPEATED = 48

WINDOW = 112  # tokens that are looked at for what was said before
MOST_OLD = 102  # of them, that may end a phrase which stood earlier
PHRASE = 12  # tokens
REACH = 512  # tokens before the window in which a phrase counts as said
EVERY = 16  # tokens between two looks


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
        kept = _repeated_from(ids, end) or (_said_from(ids, end) if end % EVERY == 0 else None)
        if kept is not None:
            return Loop(kept, end)
    return None


def _repeated_from(ids: Sequence[int], end: int) -> int | None:
    """From where on the first ``end`` tokens repeat what stood one period before them."""
    last = ids[end - 1]
    if last not in ids[max(0, end - 1 - MAX_PERIOD) : end - 1]:
        return None  # often, and sooner found than by one period after the other
    for period in range(1, min(MAX_PERIOD, end // 2) + 1):
        if ids[end - 1 - period] != last:
            continue
        start = end - num_repeated(period)
        if start >= period and ids[start:end] == ids[start - period : end - period]:
            return start
    return None


def _said_from(ids: Sequence[int], end: int) -> int | None:
    """From where on nearly all of the last of the first ``end`` tokens were said before."""
    if end < WINDOW:
        return None
    start = max(0, end - WINDOW - REACH)
    behind = end - WINDOW - start - PHRASE + 1  # phrases that end before the window
    some = ids[start:end]
    phrases = list(zip(*(islice(some, i, None) for i in range(PHRASE)), strict=False))
    said = set(phrases[: max(0, behind)])
    if len(said.union(phrases)) - len(said) > WINDOW - MOST_OLD:
        return None
    for at in range(max(0, behind), len(phrases)):
        if phrases[at] in said:
            return start + at
        said.add(phrases[at])
    return None


def up_to_loop(written: Sequence[int], new: Sequence[int]) -> int | None:
    """How many of the tokens that come behind those ``written`` leave before the text ends for
    repeating itself, None where all do and it goes on."""
    # Whole steps of EVERY are left out, so that the looks stay where they were.
    skipped = max(0, len(written) - WINDOW - REACH) // EVERY * EVERY
    behind = written[skipped:]
    loop = find_loop([*behind, *new], len(behind))
    return None if loop is None else loop.end - len(behind)
