"""How often predictions of a kind turn out right, learnt from the text as it is written.

In lossless mode every emitted token is AR's own, so whatever was predicted for its place is judged
for nothing, drafted or not. Knows tokens as numbers; knows no costs, model or settings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from mars_runtime.decoders.lookup import LONGEST
from mars_runtime.events import Proposal

EDGES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of confidence, between kinds of proposals
# Chances before anything was seen: of proposals by confidence; of the first token looked up, and of
# those behind one that was right, by the length of the match.
GUESSES = (
    *(0.1, 0.3, 0.45, 0.6, 0.75, 0.9),
    *(0.25, 0.55, 0.63, 0.7),
    *(0.65, 0.75, 0.78, 0.88),
)
FIRST_LOOKUP = len(EDGES) + 1
LATER_LOOKUP = FIRST_LOOKUP + LONGEST
ALONE, SECONDED, OPPOSED = range(3)  # what the other source of drafts says of the same place
DOUBT = 0.4  # how much of a doubt is left where both say the same; of a chance where they differ
GUESS_WEIGHT = 4.0  # a guess counts as so many predictions that were judged
FLOOR = 0.04  # a draft that leaves less often than this pays nowhere
LESSON_WEIGHT = 8.0  # and what another text taught for so many
MEMORY = 0.97  # what is left of a judgement after one more of the same kind

Chain = list[tuple[int, int]]
"""Predictions of consecutive places, each given those before it: (token, kind)."""


def chains_of(
    group: Sequence[Proposal], looked_up: Sequence[int], num_matching: int
) -> tuple[Chain, Chain]:
    """What masks, and what the text behind ``num_matching`` tokens that were the same, say of the
    places to be written next. A kind tells what the other says, up to the first difference."""
    shared = min(len(group), len(looked_up))
    parting = 0
    while parting < shared and group[parting].token == looked_up[parting]:
        parting += 1
    views = [SECONDED] * parting + [OPPOSED] * (parting < shared)
    views += [ALONE] * (max(len(group), len(looked_up)) - len(views))
    masks = [
        (proposal.token, bisect_right(EDGES, proposal.confidence) + view * len(GUESSES))
        for proposal, view in zip(group, views, strict=False)
    ]
    text = []
    kind = FIRST_LOOKUP + num_matching - 1
    for token, view in zip(looked_up, views, strict=False):
        text.append((token, kind + view * len(GUESSES)))
        kind = LATER_LOOKUP + num_matching - 1
    return masks, text


class Calibration:
    """Chances by kind, and the predictions whose places are not written yet."""

    def __init__(self, before: Calibration | None = None) -> None:
        """``before``: of another text; what was found there counts a little more than a guess."""
        if before is None:
            seconded = [1.0 - DOUBT * (1.0 - guess) for guess in GUESSES]
            opposed = [DOUBT * guess for guess in GUESSES]
            guesses = (*GUESSES, *seconded, *opposed)
            self._right = [guess * GUESS_WEIGHT for guess in guesses]
            self._seen = [GUESS_WEIGHT] * len(guesses)
        else:
            counts = list(zip(before._right, before._seen, strict=True))
            self._seen = [min(seen, LESSON_WEIGHT) for _, seen in counts]
            self._right = [right * min(1.0, LESSON_WEIGHT / seen) for right, seen in counts]
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
