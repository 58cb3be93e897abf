"""What a run is told while another process decodes it: a table in memory that both see.

It is made before the process is forked, and each run has a slot of it. This process writes, the
other one reads before each forward. What is read is either whole or not taken: every writing has a
version and a checksum over both, and a reader who finds them at odds keeps what he had and looks
again before the next forward. Knows no model and no queue.
"""

from __future__ import annotations

import mmap
import pickle
import struct
import threading
import zlib
from dataclasses import dataclass

from mars_runtime.settings import DecodeSettings

SLOT_BYTES = 8192
_VERSION = struct.Struct("<Q")
_HEAD = struct.Struct("<QII")  # version, length, checksum


@dataclass(frozen=True, slots=True)
class Orders:
    """What the lanes of a call are to obey: ``call``, whose they are; a pace for all; for each its
    settings and whether it is to end."""

    call: int
    pace: float
    settings: tuple[DecodeSettings, ...]
    is_stopped: tuple[bool, ...]


class Slots:
    """``num_slots`` places for orders, in memory that forked processes share."""

    def __init__(self, num_slots: int = 64) -> None:
        self._memory = mmap.mmap(-1, num_slots * SLOT_BYTES)
        self._versions = [0] * num_slots
        self._free = list(range(num_slots))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """A slot that nobody has; None where all are taken."""
        with self._lock:
            return self._free.pop() if self._free else None

    def give_back(self, slot: int) -> None:
        """Let another run have it."""
        with self._lock:
            self._free.append(slot)

    def write(self, slot: int, orders: Orders) -> None:
        """Put new orders in the place of the old ones. One thread at a time writes to a slot."""
        content = pickle.dumps(orders)
        start = slot * SLOT_BYTES
        assert len(content) <= SLOT_BYTES - _HEAD.size, "orders of a few lanes are short"
        self._versions[slot] += 1
        version = self._versions[slot]
        self._memory[start + _HEAD.size : start + _HEAD.size + len(content)] = content
        _HEAD.pack_into(self._memory, start, version, len(content), _sum(version, content))

    def version(self, slot: int) -> int:
        """Of what was written last; cheap enough to ask before every forward."""
        number: int = _VERSION.unpack_from(self._memory, slot * SLOT_BYTES)[0]
        return number

    def read(self, slot: int) -> tuple[int, Orders] | None:
        """What was written last, with its version; None while it is being written."""
        start = slot * SLOT_BYTES
        version, length, checksum = _HEAD.unpack_from(self._memory, start)
        content = self._memory[start + _HEAD.size : start + min(SLOT_BYTES, _HEAD.size + length)]
        if _sum(version, content) != checksum:
            return None
        orders: Orders = pickle.loads(content)
        return version, orders


class Reader:
    """The orders of one call as they come in, beginning with those it was made with."""

    def __init__(self, slots: Slots, slot: int, orders: Orders) -> None:
        self._slots = slots
        self._slot = slot
        self._version = 0
        self._orders = orders

    def latest(self) -> Orders:
        """In force now. A slot that has gone to another call says that this one is over."""
        if self._slots.version(self._slot) != self._version:
            found = self._slots.read(self._slot)
            if found is not None:
                self._version, orders = found
                is_over = orders.call != self._orders.call
                self._orders = _stopped(self._orders) if is_over else orders
        return self._orders


def _stopped(orders: Orders) -> Orders:
    every = (True,) * len(orders.settings)
    return Orders(orders.call, orders.pace, orders.settings, every)


def _sum(version: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(_VERSION.pack(version)))
