"""What is handed to the process that decodes, what comes back, and for how long a device is asked.

Everything here is pickled on its way. Knows no process and no device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.engine.leased.slots import Orders
from mars_runtime.engine.request import Asked, Request
from mars_runtime.events import Event

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts

START_SECONDS = 15.0
READ_RATE, WRITE_RATE = 1000.0, 25.0
"""Tokens per second of a lane that a device is asked for: chosen to be generous, not measured."""
SOLO_SECONDS, MOST_SECONDS = 60.0, 90.0


class LeaseError(RuntimeError):
    """A device was not lent, or was taken back; the message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class Call:
    """The lanes of one job, decoded in one go.

    number: of this call; no two are alike. slot: where its orders come in; orders: the first ones.
    until: when each lane has to end, by the clock that all processes of a machine share.
    costs: of forwards on this device, where they were measured before.
    """

    number: int
    slot: int
    checkpoint: str
    lanes: tuple[Asked, ...]
    until: tuple[float, ...]
    orders: Orders
    costs: ForwardCosts | None = None

    @property
    def seconds(self) -> float:
        """How long the device is asked for: what is not used is not charged, but what is asked for
        must be there, so it follows from the lengths. The rests of slow motion count."""
        asked = zip(self.lanes, self.orders.settings, strict=True)
        forwards = sum(_seconds(lane, settings.max_new_tokens) for lane, settings in asked)
        return min(MOST_SECONDS, START_SECONDS + forwards * (1 + self.orders.pace))


def _seconds(lane: Asked, num_tokens: int) -> float:
    if not isinstance(lane, Request):
        return SOLO_SECONDS
    return len(lane.prompt_ids) / READ_RATE + num_tokens / WRITE_RATE


@dataclass(frozen=True, slots=True)
class News:
    """Events by the numbers of their lanes, in order; now and then none at all, because whoever
    closes the stream is noticed when something comes. costs: as soon as they are measured."""

    events: tuple[tuple[int, Event], ...] = ()
    costs: ForwardCosts | None = None


Decode = Callable[[Call], Generator[News, None, None]]
"""Decodes a call where it stands."""

Lease = Callable[[Call], Generator[News, None, None]]
"""Decodes a call in another process, on a device that is lent to it; raises LeaseError."""
