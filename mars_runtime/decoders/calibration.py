"""How often predictions of a kind turn out right, learnt from the text as it is written.

In lossless mode every emitted token is AR's own, so whatever was predicted for its place is judged
for nothing, drafted or not. Knows tokens as numbers; knows no costs, model or settings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from mars_runtime.decoders.lookup import LONGEST

EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of confidence, between kinds of proposals
MASK_GUESSES = (0.1, 0.3, 0.45, 0.6, 0.75, 0.9)  # chances before anything was seen
FIRST_LOOKUP = len(MASK_GUESSES)  # the first token looked up, by the length of the match
FIRST_GUESSES = (0.25, 0.55, 0.63, 0.7)
LATER_LOOKUP = FIRST_LOOKUP + LONGEST  # those behind one that was right, likewise
LATER_GUESSES = (0.65, 0.75, 0.78, 0.88)
GUESS_WEIGHT = 4.0  # a guess counts as so many predictions that were judged
FLOOR = 0.04  # a draft that leaves less often than this pays nowhere
MEMORY = 0.97  # what is left of a judgement after one more of the same kind

Chain = list[tuple[int, int]]
"""Predictions of consecutive places, each given those before it: (token, kind)."""


def mask_kind(confidence: float) -> int:
    """The kind of a proposal."""
    return bisect_right(EDGES, confidence)


def lookup_chain(tokens: Sequence[int], num_matching: int) -> Chain:
    """Tokens that were looked up behind ``num_matching`` tokens that were the same."""
    first, later = FIRST_LOOKUP + num_matching - 1, LATER_LOOKUP + num_matching - 1
    return [(token, later if place else first) for place, token in enumerate(tokens)]


class Calibration:
    """Chances by kind, and the predictions whose places are not written yet."""

    def __init__(self) -> None:
        guesses = (*MASK_GUESSES, *FIRST_GUESSES, *LATER_GUESSES)
        self._right = [guess * GUESS_WEIGHT for guess in guesses]
        self._seen = [GUESS_WEIGHT] * len(guesses)
        self._open: list[Chain] = []

    def chances(self, chain: Iterable[tuple[int, int]]) -> list[float]:
        """That the first 1, 2, 3 ... predictions are all right, as far as that is above FLOOR."""
        found, all_right = [], 1.0
        for _, kind in chain:
            all_right *= self._right[kind] / self._seen[kind]
            if all_right < FLOOR:
                break
            found.append(all_right)
        return found

    def expect(self, chain: Chain) -> None:
        """Predictions for the places to be written next."""
        if chain:
            self._open.append(chain)

    def observe(self, tokens: Sequence[int]) -> None:
        """These tokens were written: judge what was predicted for their places. A chain ends with
        its first wrong prediction, for what was predicted behind it continued another text."""
        open_ones, self._open = self._open, []
        for chain in open_ones:
            for (predicted, kind), token in zip(chain, tokens, strict=False):
                is_right = predicted == token
                self._right[kind] = MEMORY * self._right[kind] + is_right
                self._seen[kind] = MEMORY * self._seen[kind] + 1.0
                if not is_right:
                    break
            else:
                if len(chain) > len(tokens):
                    self._open.append(chain[len(tokens) :])
