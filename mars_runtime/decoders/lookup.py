"""Prompt lookup: draft the tokens that followed an earlier occurrence of a text's last tokens
(arXiv 2304.04487).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, islice

from mars_runtime.decoders.methods import MAX_DRAFTS

MAX_MATCH = 4

REACH = (1, 4, 8, MAX_DRAFTS)
"""Tokens to draft after a match of 1, 2, 3 ... tokens, unless B is automatic. In a chat model's
answers, the first was right in 25, 56, 63 and 67 of 100 cases, each further one in 70 to 90.
"""


class Lookup:
    def __init__(self) -> None:
        self._text: list[int] = []
        # For each length: n-gram -> position after its latest occurrence that is not at the end.
        self._ends: dict[int, dict[tuple[int, ...], int]] = {
            length: {} for length in range(MAX_MATCH, 0, -1)
        }

    def __len__(self) -> int:
        return len(self._text)

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            end = len(self._text)
            for length, ends in self._ends.items():
                if length <= end:
                    ends[tuple(self._text[end - length :])] = end
            self._text.append(token)

    def following(self, at_most: int) -> tuple[list[int], int]:
        """Return the tokens after the latest earlier occurrence of the longest matching end of the
        text, and its length; ([], 0) without a match. If fewer than ``at_most`` tokens follow, they
        repeat.
        """
        for length, ends in self._ends.items():
            if length <= len(self._text) and (start := ends.get(tuple(self._text[-length:]))):
                followed = self._text[start : start + at_most]
                return list(islice(cycle(followed), at_most)), length
        return [], 0
