"""What the host knows of the rows on the device: bounds, since it does not wait to be told.

Pure bookkeeping; knows no tensors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.adaptive import Pilot
from mars_runtime.decoders.base import NoMaskError, SettingsSource
from mars_runtime.decoders.static.records import RowRecord
from mars_runtime.decoders.static.state import Shape
from mars_runtime.events import RowStep
from mars_runtime.settings import METRICS, DecodeSettings, captured

if TYPE_CHECKING:
    from mars_runtime.model.graphs import Arrival

BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
"""B is rounded up to one of these, so that moving it seldom asks for another capture."""

CONTEXT_STEP = 64
FIRST_CONTEXT = 128


@dataclass(frozen=True, slots=True)
class InForce:
    """What a step of a row obeys: its settings and its B, which the settings may leave open."""

    settings: DecodeSettings
    block_size: int

    @property
    def most_kept(self) -> int:
        """Tokens that a step keeps at most: those that leave and those that are verified next."""
        return max(self.block_size, self.settings.num_guesses + 1)


@dataclass(slots=True, eq=False)
class Seat:
    """A row. cursor, num_pending, num_emitted: as of the last step that was read.

    unread: prompt tokens still to be fed; first: the last prompt token, pending at the start.
    flying: what is in force in its steps that were started and not yet read.
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
    flying: deque[InForce] = field(default_factory=deque)
    is_gone: bool = False

    @property
    def most_pending(self) -> int:
        """Bound of the pending tokens when the next step starts."""
        return self.flying[-1].most_kept if self.flying else self.num_pending

    @property
    def furthest_cursor(self) -> int:
        """Bound of the cursor when the next step starts: it moves by the pending tokens at most."""
        moves = [self.num_pending, *(step.most_kept for step in self.flying)]
        return self.cursor + sum(moves[: len(self.flying)])

    @property
    def is_likely_to_go_on(self) -> bool:
        """Whether its limit is out of reach of the steps under way, at its rate so far."""
        rate = self.num_emitted / self.num_steps if self.num_steps else 1.0
        limit = min(self.limit, self.settings().max_new_tokens)
        return self.num_emitted + len(self.flying) * rate < limit

    def wholes(self, now: InForce | None) -> list[int]:
        """A line of ``State.wholes``; a row with nothing in force sits the step out."""
        if now is None:
            return [1, 1, 0, 0, 0, self.number, 0, -1]
        settings = now.settings
        return [
            min(self.limit, settings.max_new_tokens),
            now.block_size,
            METRICS.index(settings.metric),
            int(settings.is_verified),
            settings.seed,
            self.number,
            1,
            settings.num_guesses if settings.method == "jacobi" else -1,
        ]

    def settle(self, record: RowRecord, num_fed: int, settings: DecodeSettings) -> RowStep:
        """Learn what a step did, and tell it as an event."""
        event = record.event(self.number, num_fed, settings)
        self.cursor, self.num_pending = record.next_cursor, record.next_pending
        self.num_emitted += len(event.accepted)
        self.num_steps += 1
        return event


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was started: its shape, and for each place the row that took part in it."""

    shape: Shape
    seats: tuple[Seat | None, ...]
    arrival: Arrival


def read_settings(
    seats: Sequence[Seat], pilot: Pilot | None, has_mask: bool
) -> dict[Seat, InForce]:
    """Read the settings of the rows of the next step and choose B where they leave it open.

    Raises DecodeError with the numbers of the rows that ask for what there is not.
    """
    settings = {seat: captured(seat.settings()) for seat in seats}
    asked = {seat.number: now for seat, now in settings.items() if now.is_auto}
    if asked and pilot is None:
        sentence = "What forwards cost here was not measured: choose a number as B."
        raise DecodeError(sentence, tuple(asked))
    chosen = pilot.block_size(asked) if asked and pilot else 1
    sizes = {seat: chosen if now.is_auto else now.num_proposals for seat, now in settings.items()}
    masked = [seat.number for seat, size in sizes.items() if size > 1]
    if masked and not has_mask:
        raise NoMaskError(tuple(masked))
    return {seat: InForce(now, sizes[seat]) for seat, now in settings.items()}


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
    in_force: Mapping[Seat, InForce], max_running: int, most_rows: int, capacity: int
) -> Shape:
    """The shape of the next step of these rows."""
    settings = [now.settings for now in in_force.values()]
    # Guesses are written behind what a step keeps, so there must be room for all of them.
    pending = [
        max(seat.most_pending, now.settings.num_guesses + 1) for seat, now in in_force.items()
    ]
    block = block_bucket(pending, [now.block_size for now in in_force.values()])
    num_queries = 2 * block - 1
    verifies = any(each.is_verified for each in settings)
    furthest = max(seat.furthest_cursor for seat in in_force)
    return Shape(
        num_rows=row_bucket(max_running, most_rows),
        num_queries=num_queries,
        num_slots=num_queries if verifies else block,
        context=context_bucket(furthest + num_queries, capacity),
        is_lossless=verifies,
        is_entropy=any(each.metric == "entropy" for each in settings),
        is_drawn=any(each.temperature > 0 for each in settings),
        is_nucleus=any(each.temperature > 0 and each.top_p < 1 for each in settings),
    )
