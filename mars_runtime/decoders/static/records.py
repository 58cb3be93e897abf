"""Records: what a step leaves in the ring for the host, and the events that the host makes of them.

Knows the layout of a record and nothing of how its numbers came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.acceptance import NUM_RUNNERS_UP, Judgement
from mars_runtime.decoders.static.judge import Plan, Verdict
from mars_runtime.decoders.static.read import Reading
from mars_runtime.decoders.static.state import (
    CURSOR,
    HEAD,
    NUM_BEST,
    NUM_EMITTED,
    NUM_PENDING,
    SLOT,
    STOPS,
    Shape,
    State,
)
from mars_runtime.events import Proposal, RowStep
from mars_runtime.settings import DecodeSettings


def write_record(
    state: State,
    takes_part: Tensor,
    plan: Plan,
    reading: Reading,
    verdict: Verdict,
    moved: Tensor,
) -> None:
    """Write one step into the ring, before the state moves on. moved: the next ``numbers``."""
    heads = [
        takes_part.long(),
        reading.is_broken.long(),
        state.numbers[:, CURSOR],
        state.numbers[:, NUM_EMITTED],
        plan.num_tokens,
        plan.num_drafts,
        plan.num_slots,
        verdict.num_accepted,
        verdict.num_kept - verdict.num_accepted,
        verdict.stop,
        moved[:, CURSOR],
        moved[:, NUM_PENDING],
    ]
    missing = (0, NUM_BEST - reading.best.shape[-1])
    slots = torch.cat(
        [
            reading.tokens.unsqueeze(-1).double(),
            reading.confidences.unsqueeze(-1),
            F.pad(reading.best, missing).double(),
            F.pad(reading.ids, missing).double(),
        ],
        -1,
    )
    record = torch.cat([torch.stack(heads, 1).double(), slots.flatten(1)], 1).view(1, -1)
    ring = state.ring[:, : record.shape[1]]
    ring.index_copy_(0, state.tick % len(ring), record)
    state.tick.add_(1)


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

    def verdict(self, event: RowStep) -> Judgement:
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
