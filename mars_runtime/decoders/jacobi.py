"""Jacobi decoding: several places at once, guessed until the guesses stand (arXiv 2305.10427).

A forward feeds the last token and B - 1 guesses of what follows it; what the model answers at each
place is the guess of the next forward, as Jacobi's method solves a system of equations. The leading
guesses that equal the model's own answers are AR's text and leave, with the answer behind them; the
window moves on behind those, so none of it waits for the rest. No masks and no training: any AR
model will do, and what leaves is verified as any draft is (``acceptance.judge``).

A place that comes into the window new has no answer yet. Its first guess is the token before it,
once more: it needs nothing but the window. Knows tokens as numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_guesses(last: int, answers: Sequence[int], count: int, ends: frozenset[int]) -> list[int]:
    """Guesses behind ``answers`` that make ``count`` of both; none behind an end of the text.

    last: the token before the answers, which counts where there are none of those.
    """
    before = answers[-1] if answers else last
    return [] if before in ends else [before] * (count - len(answers))
