"""What the device keeps of every row between two steps, the shapes a step may have, and the record
that a step leaves for the host.

All of it is preallocated and written in place, so that a captured step finds it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from mars_runtime.acceptance import NUM_RUNNERS_UP, Judgement
from mars_runtime.events import Proposal, RowStep, Stop
from mars_runtime.settings import MAX_BLOCK_SIZE, DecodeSettings

STOPS: tuple[Stop, ...] = tuple(each for each in get_args(Stop) if each != "repeats")
"""Those that a step on the device tells; loops are looked for on the host."""
MAX_QUERIES = 2 * MAX_BLOCK_SIZE - 1
NUM_BEST = NUM_RUNNERS_UP + 1

# Columns of State.numbers: what a step changes.
IS_LIVE, CURSOR, NUM_PENDING, NUM_DRAFTS, NUM_EMITTED = range(5)
# Columns of State.wholes and State.reals: what the host sets. METRIC is an index of METRICS;
# NUM_GUESSES, of a row that is decoded by Jacobi, is -1 for all others.
LIMIT, BLOCK_SIZE, METRIC, IS_LOSSLESS, SEED, NUMBER, TAKES_PART, NUM_GUESSES = range(8)
TAU, TEMPERATURE, TOP_P = range(3)

# A record: for each row HEAD numbers, then SLOT numbers for each slot that was read.
# takes_part, is_broken, cursor, start, num_pending, num_fed_drafts, num_slots, num_accepted,
# num_drafted, stop, and the cursor and the number of pending tokens of the next step
HEAD = 12
SLOT = 2 + 2 * NUM_BEST  # token, confidence, the best probabilities, their ids


@dataclass(frozen=True, slots=True)
class Shape:
    """All that is fixed in a captured step; one capture for each that is met.

    context: slots of the cache that attention reads. num_slots: predictions read of each row.
    is_lossless, is_entropy, is_drawn, is_nucleus: whether any row needs drafts verified, entropies,
    noise, or draws from its most probable tokens alone.
    """

    num_rows: int
    num_queries: int
    num_slots: int
    context: int
    is_lossless: bool = False
    is_entropy: bool = False
    is_drawn: bool = False
    is_nucleus: bool = False

    @property
    def record_size(self) -> int:
        return self.num_rows * (HEAD + self.num_slots * SLOT)


@dataclass(frozen=True, slots=True)
class State:
    """Tensors on the device, one line for each place of the batch.

    numbers: [R, 5] int64. pending: [R, MAX_QUERIES] int64, the tokens behind the cursor.
    wholes: [R, 8] int64 and reals: [R, 3] fp64, the settings in force. fp64 because a threshold
    that was rounded to fp32 would let through what the threshold itself refuses.
    ring: [S, ...] fp64, the records of the last S steps. tick: [1] int64, steps so far.
    """

    numbers: Tensor
    pending: Tensor
    wholes: Tensor
    reals: Tensor
    ring: Tensor
    tick: Tensor

    @classmethod
    def new(cls, num_rows: int, ring_size: int, device: torch.device) -> State:
        """Places without rows: not live, one pending token, a limit of one."""
        longest = Shape(num_rows, MAX_QUERIES, MAX_QUERIES, 0).record_size

        def zeros(size: tuple[int, ...], dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        state = cls(
            numbers=zeros((num_rows, 5)),
            pending=zeros((num_rows, MAX_QUERIES)),
            wholes=zeros((num_rows, 8)),
            reals=zeros((num_rows, 3), torch.float64),
            ring=zeros((ring_size, longest), torch.float64),
            tick=zeros((1,)),
        )
        state.numbers[:, NUM_PENDING] = 1
        state.wholes[:, BLOCK_SIZE] = 1
        return state

    def first(self, num_rows: int) -> State:
        """The first places, as views."""
        return replace(
            self,
            numbers=self.numbers[:num_rows],
            pending=self.pending[:num_rows],
            wholes=self.wholes[:num_rows],
            reals=self.reals[:num_rows],
        )

    @property
    def changed(self) -> tuple[Tensor, ...]:
        """What a step writes to, its caches apart."""
        return self.numbers, self.pending, self.ring, self.tick


@dataclass(frozen=True, slots=True)
class RowRecord:
    """What one step did to one place: ``numbers`` is its part of the record."""

    numbers: Sequence[float]

    @property
    def is_broken(self) -> bool:
        """The row's logits were no numbers: it stayed where it was."""
        return bool(self.numbers[1])

    @property
    def num_fed_drafts(self) -> int:
        return int(self.numbers[5])

    @property
    def num_agreed(self) -> int:
        """Drafts that AR confirmed: what the cursor moved beyond the tokens that had left."""
        cursor, _, num_pending, num_drafts = self.numbers[2:6]
        return int(self.next_cursor - cursor - num_pending + num_drafts)

    @property
    def next_cursor(self) -> int:
        return int(self.numbers[HEAD - 2])

    @property
    def next_pending(self) -> int:
        return int(self.numbers[HEAD - 1])

    def judgement(self, event: RowStep) -> Judgement:
        """The judgement behind an event of this record."""
        end = len(event.accepted) + event.num_drafted
        drafts = [slot.token for slot in event.proposals[len(event.accepted) : end]]
        return Judgement(list(event.accepted), self.num_agreed, drafts, event.stop)

    def event(self, row: int, num_fed: int, settings: DecodeSettings) -> RowStep:
        """The event of a row that took part and is not broken."""
        numbers = [int(number) for number in self.numbers[2 : HEAD - 2]]
        cursor, start, num_pending, num_drafts, num_slots, num_accepted, num_drafted, stop = numbers
        slots = tuple(
            [
                _proposal(self.numbers[at : at + SLOT])
                for at in range(HEAD, HEAD + num_slots * SLOT, SLOT)
            ]
        )
        kept = slots[: num_accepted + num_drafted]
        num_guessed = self.next_pending - len(kept) + self.num_agreed
        return RowStep(
            row=row,
            start=start,
            cursor=cursor,
            num_pending=num_pending,
            num_fed=num_fed,
            proposals=slots,
            accepted=tuple([slot.token for slot in slots[:num_accepted]]),
            num_drafted=num_drafted,
            settings=settings,
            stop=STOPS[stop],
            block_size=num_slots - num_drafts if settings.is_auto else 0,
            guessed=(kept[-1].token,) * num_guessed,
        )


def _proposal(slot: Sequence[float]) -> Proposal:
    token, best, ids = int(slot[0]), slot[2 : 2 + NUM_BEST], slot[2 + NUM_BEST :]
    ranked = zip(ids, best, strict=True)
    others = [(int(each), share) for each, share in ranked if share and each != token]
    return Proposal(token, slot[1], tuple(others[:NUM_RUNNERS_UP]))


def split_record(numbers: Sequence[float], shape: Shape) -> list[RowRecord]:
    """One record, place by place."""
    width = HEAD + shape.num_slots * SLOT
    return [RowRecord(numbers[at : at + width]) for at in range(0, len(numbers), width)]
