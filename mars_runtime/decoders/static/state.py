"""What the device keeps of every row between two steps, and the shapes a step may have.

All of it is preallocated and written in place, so that a captured step finds it again. Knows no
model and no arithmetic of decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from mars_runtime.acceptance import NUM_RUNNERS_UP
from mars_runtime.events import Stop
from mars_runtime.settings import MAX_BLOCK_SIZE

STOPS: tuple[Stop, ...] = get_args(Stop)
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
