"""What the host knows of the rows on the device: bounds, since it does not wait to be told.

Pure bookkeeping; knows no tensors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mars_runtime.acceptance import is_lossless
from mars_runtime.decoders.base import SettingsSource
from mars_runtime.decoders.static.records import RowRecord
from mars_runtime.decoders.static.state import Shape
from mars_runtime.events import RowStep
from mars_runtime.settings import DecodeSettings

BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
"""B is rounded up to one of these, so that moving it seldom asks for another capture."""

CONTEXT_STEP = 64
FIRST_CONTEXT = 128


@dataclass(slots=True, eq=False)
class Seat:
    """A row. cursor, num_pending, num_emitted: as of the last step that was read.

    unread: prompt tokens still to be fed; first: the last prompt token, pending at the start.
    flying: the settings of its steps that were started and not yet read.
    """

    number: int
    settings: SettingsSource
    limit: int
    first: int
    unread: list[int]
    cursor: int = 0
    num_pending: int = 1
    num_emitted: int = 0
    num_steps: int = 0
    flying: deque[DecodeSettings] = field(default_factory=deque)
    is_gone: bool = False

    @property
    def most_pending(self) -> int:
        """Bound of the pending tokens when the next step starts."""
        return self.flying[-1].num_proposals if self.flying else self.num_pending

    @property
    def furthest_cursor(self) -> int:
        """Bound of the cursor when the next step starts: it moves by the pending tokens at most."""
        moves = [self.num_pending, *(settings.num_proposals for settings in self.flying)]
        return self.cursor + sum(moves[: len(self.flying)])

    @property
    def is_likely_to_go_on(self) -> bool:
        """Whether its limit is out of reach of the steps under way, at its rate so far."""
        rate = self.num_emitted / self.num_steps if self.num_steps else 1.0
        limit = min(self.limit, self.settings().max_new_tokens)
        return self.num_emitted + len(self.flying) * rate < limit

    def settle(self, record: RowRecord, num_fed: int, settings: DecodeSettings) -> RowStep:
        """Learn what a step did, and tell it as an event."""
        event = record.event(self.number, num_fed, settings)
        self.cursor, self.num_pending = record.next_cursor, record.next_pending
        self.num_emitted += len(event.accepted)
        self.num_steps += 1
        return event


def block_bucket(pending: Sequence[int], blocks: Sequence[int]) -> int:
    """The smallest of BLOCKS that is no smaller than any B and whose Q = 2B - 1 has room for the
    pending tokens and masks of every row."""
    needed = max(n + b - 1 for n, b in zip(pending, blocks, strict=True))
    return next(b for b in BLOCKS if b >= max(blocks) and 2 * b - 1 >= needed)


def row_bucket(count: int, most: int) -> int:
    """The next power of two, at most ``most``."""
    return min(1 << (count - 1).bit_length(), most)


def context_bucket(needed: int, capacity: int) -> int:
    """128, 192, 256, 384, 512, 768 ... slots, at most ``capacity``, itself a multiple of 64."""
    size = FIRST_CONTEXT
    while size < needed:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return min(size, capacity)


def shape_for(
    seats: Sequence[Seat],
    settings: Sequence[DecodeSettings],
    num_places: int,
    most_rows: int,
    capacity: int,
) -> Shape:
    """The shape of the next step of these rows under these settings."""
    pending = [seat.most_pending for seat in seats]
    block = block_bucket(pending, [each.num_proposals for each in settings])
    num_queries = 2 * block - 1
    verifies = any(map(is_lossless, settings))
    return Shape(
        num_rows=row_bucket(num_places, most_rows),
        num_queries=num_queries,
        num_slots=num_queries if verifies else block,
        context=context_bucket(max(s.furthest_cursor for s in seats) + num_queries, capacity),
        is_lossless=verifies,
        is_entropy=any(each.metric == "entropy" for each in settings),
        is_drawn=any(each.temperature > 0 for each in settings),
    )
