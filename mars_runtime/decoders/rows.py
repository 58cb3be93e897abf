"""Which row stands in which place of a cache, and what of it is still to be fed: bookkeeping.

The rows of the next forward stand in the first places, the others behind them. One equation always
holds of a row: the tokens in the cache, those unread and those pending, less the drafts, are its
prompt and what it has emitted. Knows tokens as numbers and the cache as places that can be moved;
knows no tensors, model or acceptance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mars_runtime.decoders.lookup import Lookup
from mars_runtime.settings import MAX_FED, DecodeSettings


class Places(Protocol):
    """What is asked of a cache; ``cache.BlockKVCache`` is one."""

    rows: int
    cursors: list[int]

    def clear(self, row: int, num_slots: int) -> None: ...
    def move(self, source: int, target: int, num_slots: int) -> None: ...
    def swap(self, one: int, other: int) -> None: ...


@dataclass(slots=True)
class Row:
    """A row that is being decoded. Its cursor is that of its place.

    limit: tokens it may emit at most, for which the cache has room.
    unread: prompt tokens to be fed before it can decode.
    pending: tokens behind the cursor: emitted ones, then ``num_drafts`` that wait for AR's word.
    text: the prompt and all that was emitted; as much of it as was asked for is in ``lookup``.
    num_reused: prompt tokens that were neither unread nor fed, because they were in a cache before.
    raised: how far its threshold has risen, by what AR thought of its tokens.
    is_sound: whether the latest forward of the row went well. What it read of its slots were
        numbers, so keys and values of all tokens before them are.
    """

    number: int
    settings: Callable[[], DecodeSettings]
    limit: int
    unread: list[int]
    pending: list[int]
    text: list[int]
    num_drafts: int = 0
    num_emitted: int = 0
    num_reused: int = 0
    raised: float = 0.0
    is_sound: bool = False
    lookup: Lookup = field(default_factory=Lookup)

    def emit(self, emitted: list[int], num_agreed: int, drafts: list[int]) -> None:
        """Tokens left, of which the first ``num_agreed`` were pending as drafts already."""
        self.pending = emitted[num_agreed:] + drafts
        self.num_drafts = len(drafts)
        self.num_emitted += len(emitted)
        self.text += emitted

    def look_up(self, emitted: list[int], at_most: int) -> tuple[list[int], int]:
        """What followed the last tokens of the text before, once ``emitted`` have left, and how
        many of them were the same."""
        self.lookup.extend(self.text[len(self.lookup) :])
        self.lookup.extend(emitted)
        return self.lookup.following(at_most)


class Rows:
    """The rows on one cache, in the order of their places."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._rows: list[Row] = []
        self._left = [0] * places.rows  # by the last tenant of a free place: slots it may have used

    @property
    def numbers(self) -> tuple[int, ...]:
        """In the order of their places."""
        return tuple(row.number for row in self._rows)

    @property
    def ready(self) -> tuple[int, ...]:
        """Numbers of the rows whose prompts are read."""
        return tuple(row.number for row in self._rows if not row.unread)

    @property
    def is_full(self) -> bool:
        """Whether every place is taken."""
        return len(self._rows) == self._places.rows

    def find(self, number: int) -> tuple[int, Row]:
        """Place and row. Raises KeyError."""
        for place, row in enumerate(self._rows):
            if row.number == number:
                return place, row
        raise KeyError(number)

    def join(
        self, number: int, prompt: Sequence[int], settings: Callable[[], DecodeSettings], limit: int
    ) -> None:
        """Take the next free place, as new. The last prompt token is pending, the rest unread, so
        that every emitted token comes out of a step."""
        assert not self.is_full, "there is a free place"
        assert number not in self.numbers, "a number is used once at a time"
        place = len(self._rows)
        self._places.clear(place, self._left[place])
        self._left[place] = 0
        self._rows.append(
            Row(number, settings, limit, list(prompt[:-1]), [prompt[-1]], list(prompt))
        )

    def drop(self, number: int) -> None:
        """Free the row's place at once; the last row moves into it. Raises KeyError."""
        place, last = self.find(number)[0], len(self._rows) - 1
        used, self._left[last] = self._used(place), self._used(last)
        if place != last:
            self._places.move(last, place, used)
            self._rows[place] = self._rows[last]
        self._rows.pop()
        self._places.cursors[last] = 0

    def _used(self, place: int) -> int:
        """How many slots of a place may have been written, also by a forward that failed."""
        return self._places.cursors[place] + len(self._rows[place].unread) + MAX_FED

    def seat(self, numbers: Sequence[int]) -> list[Row]:
        """Bring these rows to the first places, moving as few as possible; returns them in the
        order of their places. Raises KeyError."""
        wanted = set(numbers)
        if unknown := wanted.difference(self.numbers):
            raise KeyError(min(unknown))
        count = len(wanted)
        out = [place for place in range(count) if self._rows[place].number not in wanted]
        if out:
            behind = range(count, len(self._rows))
            into = [place for place in behind if self._rows[place].number in wanted]
            for one, other in zip(out, into, strict=True):
                self._places.swap(one, other)
                self._rows[one], self._rows[other] = self._rows[other], self._rows[one]
        return self._rows[:count]
