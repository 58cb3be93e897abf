"""Where a text begins to repeat itself: pure functions of token ids.

A text is in a loop where the same tokens come again and again, or where nearly all of them do:
stanzas that come back with a word changed, a list whose lines differ in their number alone, a few
sentences in ever another order. Tokens are looked at one by one, in their order, so that it does
not matter how many of them a forward gave. A loop has to go on long enough to be none of the
refrains, tables and listings that people write; ``tools/human_loops.py`` counts those that are
taken for one all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MAX_PERIOD = 64
MIN_REPEATED = 48

EVERY = 16  # tokens between two looks for what nearly repeats


class Nearly(NamedTuple):
    """A loop too: of the last tokens, ``percent`` equal the one that stood one period before. There
    are ``at_least`` such tokens, and ``halves`` half periods; a period has up to ``longest``."""

    percent: int
    at_least: int
    halves: int
    longest: int

    def num_looked_at(self, period: int) -> int:
        """Tokens of which so many must repeat."""
        return max(self.at_least, period * self.halves // 2)


NEARLY = (Nearly(90, 112, 3, 160), Nearly(77, 112, 12, 64))
"""A long stanza soon, if hardly a word of it is changed; a line that comes again and again also
with a number in it that moves."""
LONGEST = max(rule.longest for rule in NEARLY)
MOST = max(rule.num_looked_at(rule.longest) for rule in NEARLY)
REACH = LONGEST + MOST
"""Tokens at most that say whether the last one ends a loop."""


class Phrases(NamedTuple):
    """A loop too: of the last ``among`` tokens, which are of at most ``kinds`` kinds, ``at_least``
    end a phrase of ``length`` tokens that stood before, in the last ``REACH`` of the text."""

    length: int
    among: int
    at_least: int
    kinds: int


PHRASES = Phrases(4, 96, 86, 41)
"""A refrain has more kinds of tokens in it, or verses between."""


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
        kept = _repeated_from(ids, end)
        if kept is None and end % EVERY == 0:
            kept = _nearly_from(ids, end) or _phrases_from(ids, end)
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


def _nearly_from(ids: Sequence[int], end: int) -> int | None:
    """From where on nearly all of the first ``end`` tokens repeat what stood one period before."""
    start = max(0, end - REACH)
    few = end - start
    some = np.full(REACH, -1)
    some[REACH - few :] = ids[start:end]
    last = some[-MOST:]
    # before[p - 1, i]: what stood p tokens before last[i].
    before = np.lib.stride_tricks.sliding_window_view(some, MOST)[LONGEST - 1 :: -1]
    repeats = (before == last) & (last >= 0)
    for counted, needed, most in _RULES:
        repeated = repeats[: len(counted)] & counted
        enough = (repeated.sum(axis=1) * 100 >= needed) & (most <= few)
        if enough.any():
            return end - MOST + int(repeated[enough.argmax()].argmax())
    return None


def _phrases_from(ids: Sequence[int], end: int) -> int | None:
    """From where on nearly all phrases of the first ``end`` tokens stood there before."""
    start = max(0, end - REACH)
    some = ids[start:end]
    if len(some) < PHRASES.among or len(set(some[-PHRASES.among :])) > PHRASES.kinds:
        return None
    seen: set[tuple[int, ...]] = set()
    repeats = []
    for first in range(len(some) - PHRASES.length + 1):
        phrase = tuple(some[first : first + PHRASES.length])
        if phrase in seen and first + PHRASES.length > len(some) - PHRASES.among:
            repeats.append(start + first)
        seen.add(phrase)
    return repeats[0] if len(repeats) >= PHRASES.at_least else None


def _by_period(rule: Nearly) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """For each period from 1 on: which of the last MOST tokens are looked at, a hundred times how
    many of them must repeat, and how many tokens there must be for that."""
    periods = np.arange(1, rule.longest + 1)
    looked_at = np.array([rule.num_looked_at(int(period)) for period in periods])
    counted = np.arange(MOST) >= MOST - looked_at[:, None]
    return counted, rule.percent * looked_at, periods + looked_at


_RULES = tuple(map(_by_period, NEARLY))


def up_to_loop(written: Sequence[int], new: Sequence[int]) -> int | None:
    """How many of the tokens that come behind those ``written`` leave before the text ends for
    repeating itself, None where all do and it goes on."""
    # Whole steps of EVERY are left out, so that the looks stay where they were.
    skipped = max(0, len(written) - REACH) // EVERY * EVERY
    behind = written[skipped:]
    loop = find_loop([*behind, *new], len(behind))
    return None if loop is None else loop.end - len(behind)
