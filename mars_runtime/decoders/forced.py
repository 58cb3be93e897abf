"""How many tokens each forward takes, drawn from a given histogram: for timing models that have no
real weights, and for nothing else. What is written under it means nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from mars_runtime.acceptance import DecodeError
from mars_runtime.settings import MAX_BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class ForcedAcceptance:
    """``shares[k - 1]`` is the share of forwards that take k tokens; they add up to 1.

    A forward takes at most B of them, whatever is drawn. The draw depends on (seed, row, position
    in the answer) alone, so that every peer of a comparison meets the same luck. In lossless mode
    all drafts are taken as agreed, so that the same histogram holds one forward later.
    Raises DecodeError.
    """

    shares: tuple[float, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        is_valid = (
            0 < len(self.shares) <= MAX_BLOCK_SIZE
            and all(share >= 0 for share in self.shares)
            and math.isclose(sum(self.shares), 1.0, abs_tol=1e-3)
        )
        if not is_valid:
            raise DecodeError(
                "Give an acceptance histogram as the shares of forwards that take 1, 2, 3 ... "
                f"tokens, at most {MAX_BLOCK_SIZE} numbers that add up to 1."
            )

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> ForcedAcceptance:
        """From "0.55,0.23,0.10,0.12". Raises DecodeError."""
        try:
            shares = tuple(float(part) for part in text.split(","))
        except ValueError:
            shares = ()
        return cls(shares, seed)

    @classmethod
    def recorded(cls, counts: Mapping[int, int], seed: int = 0) -> ForcedAcceptance:
        """From how many forwards of real runs took k tokens, by k. Raises DecodeError."""
        total, most = sum(counts.values()), max(counts, default=0)
        return cls(tuple(counts.get(k, 0) / max(total, 1) for k in range(1, most + 1)), seed)

    @property
    def mean(self) -> float:
        """Tokens a forward that the histogram promises where B does not cap it."""
        return sum(k * share for k, share in enumerate(self.shares, 1))

    @property
    def bounds(self) -> tuple[float, ...]:
        """k + 1 tokens are taken when a uniform number is at or above bound k: MAX_BLOCK_SIZE - 1
        numbers, those behind the histogram infinite."""
        sums = list(accumulate(self.shares))[:-1]
        return (*sums, *[math.inf] * (MAX_BLOCK_SIZE - 1 - len(sums)))
