"""Loop detection: find where a text begins to repeat itself, as pure functions of token ids.

Nearly all of the same tokens recur: stanzas with one changed word, a list with lines that differ
    only in their number, a few sentences in changing order. The result does not depend on how many
    tokens a forward pass emitted. Of 29,535 human texts nine are classified as loops, all of them
    code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MAX_PERIOD = 64
MIN_REPEATED = 48

CHECK_TOKENS = 16  # number of tokens between two checks for near repetition


class Nearly(NamedTuple):
    """``percent`` % of the last ``at_least`` tokens, or of ``halves`` half periods if these are
    longer, recur after one period of at most ``longest`` tokens.
    """

    percent: int
    at_least: int
    halves: int
    longest: int

    def num_looked_at(self, period: int) -> int:
        return max(self.at_least, period * self.halves // 2)


NEARLY = (Nearly(90, 112, 3, 160), Nearly(77, 112, 12, 64))
"""The first rule finds long stanzas early, the second a repeated line with a changing number."""
LONGEST = max(rule.longest for rule in NEARLY)
MOST = max(rule.num_looked_at(rule.longest) for rule in NEARLY)
SHORTEST = min(rule.at_least for rule in NEARLY)
REACH = LONGEST + MOST
"""Tokens at the end of a text that are searched for a loop."""


class Phrases(NamedTuple):
    """The last ``among`` tokens have at most ``kinds`` distinct values, and at least ``at_least``
    of them end a phrase of ``length`` tokens that occurred before within the last ``REACH`` tokens.
    """

    length: int
    among: int
    at_least: int
    kinds: int


PHRASES = Phrases(4, 96, 86, 41)
"""Human refrains have more distinct tokens, or verses in between."""


class Loop(NamedTuple):
    """kept: number of tokens up to the end of the first copy of the repeated part.
    end: number of tokens up to the one at which the loop is detected.
    """

    kept: int
    end: int


def num_repeated(period: int) -> int:
    """Return how many tokens must equal the token one period before: one and a half periods, but at
    least MIN_REPEATED.
    """
    return max(MIN_REPEATED, period + period // 2)


def find_loop(ids: Sequence[int], first: int = 0) -> Loop | None:
    """Return the first loop that is detected after the first ``first`` tokens, or None."""
    for end in range(first + 1, len(ids) + 1):
        num_kept = _repeated_from(ids, end)
        if num_kept is None and end % CHECK_TOKENS == 0:
            num_kept = _nearly_from(ids, end) or _phrases_from(ids, end)
        if num_kept is not None:
            return Loop(num_kept, end)
    return None


def _repeated_from(ids: Sequence[int], end: int) -> int | None:
    last = ids[end - 1]
    if last not in ids[max(0, end - 1 - MAX_PERIOD) : end - 1]:
        return None  # This is the usual case and faster than testing every period.
    for period in range(1, min(MAX_PERIOD, end // 2) + 1):
        if ids[end - 1 - period] != last:
            continue
        start = end - num_repeated(period)
        if start >= period and ids[start:end] == ids[start - period : end - period]:
            return start
    return None


def _nearly_from(ids: Sequence[int], end: int) -> int | None:
    start = max(0, end - REACH)
    count = end - start
    if count <= SHORTEST:
        return None
    window = np.full(REACH, -1)
    window[REACH - count :] = ids[start:end]
    last = window[-MOST:]
    # before[p - 1, i] is the token p positions before last[i].
    before = np.lib.stride_tricks.sliding_window_view(window, MOST)[LONGEST - 1 :: -1]
    repeats = (before == last) & (last >= 0)
    for counted, needed, most in _RULES:
        repeated = repeats[: len(counted)] & counted
        matches = (repeated.sum(axis=1) * 100 >= needed) & (most <= count)
        if matches.any():
            return end - MOST + int(repeated[matches.argmax()].argmax())
    return None


def _phrases_from(ids: Sequence[int], end: int) -> int | None:
    start = max(0, end - REACH)
    window = ids[start:end]
    if len(window) < PHRASES.among or len(set(window[-PHRASES.among :])) > PHRASES.kinds:
        return None
    earlier: set[tuple[int, ...]] = set()
    repeats = []
    for first in range(len(window) - PHRASES.length + 1):
        phrase = tuple(window[first : first + PHRASES.length])
        if phrase in earlier and first + PHRASES.length > len(window) - PHRASES.among:
            repeats.append(start + first)
        earlier.add(phrase)
    return repeats[0] if len(repeats) >= PHRASES.at_least else None


def _by_period(rule: Nearly) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return, for each period from 1 token upwards: which of the last MOST tokens are counted, 100
    times the number of these that must repeat, and the minimum length of the text.
    """
    periods = np.arange(1, rule.longest + 1)
    looked_at = np.array([rule.num_looked_at(int(period)) for period in periods])
    counted = np.arange(MOST) >= MOST - looked_at[:, None]
    return counted, rule.percent * looked_at, periods + looked_at


_RULES = tuple(map(_by_period, NEARLY))


def up_to_loop(written: Sequence[int], new: Sequence[int]) -> int | None:
    """Return how many of the ``new`` tokens are emitted if they complete a loop, else None."""
    # Skip a multiple of CHECK_TOKENS, so that the checks are at the same positions in the text.
    skipped = max(0, len(written) - REACH) // CHECK_TOKENS * CHECK_TOKENS
    recent = written[skipped:]
    loop = find_loop([*recent, *new], len(recent))
    return None if loop is None else loop.end - len(recent)
