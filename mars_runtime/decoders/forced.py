"""Impose an acceptance histogram on a model, to time weights that were not trained for masks.

``ForcedModel`` performs the computation of the wrapped model and then replaces tokens and
confidences, so the generated text is meaningless.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch import Tensor

from mars_runtime.acceptance import DecodeError
from mars_runtime.events import Proposal
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata
from mars_runtime.settings import MAX_BLOCK_SIZE

ACCEPTED, REJECTED = 1.0, -1.0
"""Confidences of imposed proposals. REJECTED is below every τ."""


@dataclass(frozen=True, slots=True)
class ForcedAcceptance:
    """Acceptance histogram: ``shares[k - 1]`` is the share of forward passes that accept k tokens.

    The shares add up to 1. A forward pass never accepts more than B tokens. The number of accepted
    tokens depends only on the seed, the row and the position in the answer, so all compared methods
    draw the same numbers. In lossless mode every draft is confirmed, so the same histogram applies
    one forward pass later. Raises DecodeError for an invalid histogram.
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
                "The acceptance histogram must be the shares of forward passes that accept 1, 2, "
                f"3 ... tokens: at most {MAX_BLOCK_SIZE} numbers that add up to 1."
            )

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> ForcedAcceptance:
        """Parse comma-separated shares such as "0.55,0.23,0.10,0.12". Raises DecodeError."""
        try:
            shares = tuple(float(share) for share in text.split(","))
        except ValueError:
            shares = ()
        return cls(shares, seed)

    @classmethod
    def recorded(cls, counts: Mapping[int, int], seed: int = 0) -> ForcedAcceptance:
        """Build the acceptance histogram of real runs.

        ``counts`` maps k to the number of forward passes that accepted k tokens.

        Raises DecodeError.
        """
        total, longest = sum(counts.values()), max(counts, default=0)
        return cls(tuple(counts.get(k, 0) / max(total, 1) for k in range(1, longest + 1)), seed)

    @property
    def mean(self) -> float:
        """Mean number of tokens per forward pass, if B does not limit it."""
        return sum(k * share for k, share in enumerate(self.shares, 1))

    def count(self, row: int, position: int) -> int:
        """Return how many tokens a forward pass accepts if its first new token is at
        ``position``."""
        key = hashlib.blake2b(f"{self.seed} {row} {position}".encode(), digest_size=4).digest()
        bounds = list(accumulate(self.shares))[:-1]
        return 1 + bisect_right(bounds, int.from_bytes(key, "little") / 2**32)


class ForcedModel(CausalModel):
    """Wraps a model so that it confirms every draft and accepts proposals as ``forced`` requires.

    Only one group of masks, after the last token, is supported. ``mask_id`` is None if masks are
    never fed.
    """

    def __init__(self, model: CausalModel, forced: ForcedAcceptance, mask_id: int | None) -> None:
        self.config, self.device = model.config, model.device
        self._model, self._forced, self._mask_id = model, forced, mask_id
        self._fed: list[list[int]] = []
        self._cursors: list[int] = []

    def new_cache(self, rows: int, capacity: int) -> Any:
        return self._model.new_cache(rows, capacity)

    def hidden(self, tokens: Tensor, cache: Any, branches: Branches | None = None) -> Any:
        """Run the model and store the fed tokens for ``read``."""
        assert branches is None, "only one group of masks is supported"
        self._fed, self._cursors = tokens.tolist(), list(cache.cursors[: len(tokens)])
        return self._model.hidden(tokens, cache)

    def logits(self, hidden: Any, head: Tensor | slice) -> Tensor:
        return self._model.logits(hidden, head)

    def read(
        self,
        hidden: Any,
        head: Tensor | slice,
        sampling: SamplingMetadata,
    ) -> list[list[Proposal]]:
        """Return the predictions of the latest forward pass, changed to follow the histogram."""
        predictions = self._model.read(hidden, head, sampling)
        slots = range(len(self._fed[0]))[head] if isinstance(head, slice) else None
        return [
            self._impose(row, proposals, slots or head[row].tolist())  # type: ignore[index]
            for row, proposals in enumerate(predictions)
        ]

    def _impose(
        self, row: int, proposals: Sequence[Proposal], slots: Sequence[int]
    ) -> list[Proposal]:
        fed = self._fed[row]
        masks = [slot for slot, token in enumerate(fed) if token == self._mask_id]
        last = (masks[0] if masks else len(fed)) - 1
        count = self._forced.count(row, self._cursors[row] + last)
        imposed = []
        for slot, proposal in zip(slots, proposals, strict=True):
            token = fed[slot + 1] if slot < last else proposal.token
            confidence = ACCEPTED if slot < last + count else REJECTED
            imposed.append(proposal._replace(token=token, confidence=confidence))
        return imposed
