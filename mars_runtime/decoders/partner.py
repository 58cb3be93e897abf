"""What a batch asks of a draft model beside it: more drafts for some of its rows.

The batch verifies them with the next forward, as it does whatever masks or look-up propose. Knows
rows as bookkeeping; knows no draft model (``speculative.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mars_runtime.decoders.rows import Row
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class Wish:
    """Up to ``at_most`` further drafts for ``row``, behind what it is about to emit and ``drafts``,
    which others proposed."""

    row: Row
    emitted: Sequence[int]
    drafts: Sequence[int]
    at_most: int
    settings: DecodeSettings


@dataclass(frozen=True, slots=True)
class Added:
    """What a draft model put behind the drafts of a row, and its forwards for that row."""

    tokens: tuple[int, ...] = ()
    num_forwards: int = 0


NOTHING = Added()


class Partner(Protocol):
    """Draft models beside a batch; their rows have the numbers of its rows."""

    def read(self, row: Row, at_most: int) -> int:
        """Feed the next part of the row's prompt; returns how many tokens are left to read.
        Raises DecodeError."""

    def extend(self, wishes: Sequence[Wish]) -> dict[int, Added]:
        """Fulfil wishes, all rows of a draft model in the same forwards; by number of the row.
        Raises DecodeError with the numbers of the rows it is about."""

    def forget(self, number: int) -> None:
        """The row is gone; its number may be used anew."""


class Speculation(Protocol):
    """How a batch comes by draft models."""

    @property
    def block_size(self) -> int:
        """What the target was trained with: it is fed no more masks beside a draft model."""

    def partner(self, eos_ids: frozenset[int], num_rows: int, capacity: int) -> Partner:
        """Draft models beside a batch of ``num_rows`` rows of ``capacity`` tokens each."""
