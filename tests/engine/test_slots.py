"""What a run is told in another process: whole, the latest, and only its own."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from mars_runtime.engine.leased.slots import SLOT_BYTES, Orders, Reader, Slots
from mars_runtime.settings import DecodeSettings

FIRST = Orders(7, 0.0, (DecodeSettings(),), (False,))


def orders(number: int) -> Orders:
    """All parts say the same number, so that a mixture of two would show."""
    settings = DecodeSettings(seed=number, max_new_tokens=1 + number % 4096)
    return Orders(7, float(number), (settings,) * (1 + number % 4), (bool(number % 2),))


def test_a_reader_begins_with_what_it_was_given_and_sees_each_change() -> None:
    slots = Slots(2)
    reader = Reader(slots, 1, FIRST)
    assert reader.latest() is FIRST
    for number in range(1, 5):
        slots.write(1, replace(FIRST, pace=float(number)))
        slots.write(0, replace(FIRST, call=8, pace=100.0))
        assert reader.latest().pace == number
        assert reader.latest() is reader.latest()


def test_a_slot_that_went_to_another_call_ends_whoever_reads_it_still() -> None:
    slots = Slots(1)
    reader = Reader(slots, 0, FIRST)
    slots.write(0, replace(FIRST, call=8, pace=3.0))
    assert reader.latest() == replace(FIRST, is_stopped=(True,))


def test_half_a_writing_is_not_taken_and_looked_at_again() -> None:
    slots = Slots(1)
    slots.write(0, orders(1))
    reader = Reader(slots, 0, FIRST)
    assert reader.latest() == orders(1)
    whole = slots._memory[:SLOT_BYTES]
    slots.write(0, orders(2))
    after = slots._memory[:SLOT_BYTES]
    found = []
    for place in [at for at in range(SLOT_BYTES) if whole[at] != after[at]]:
        for half in (whole[:place] + after[place:], after[:place] + whole[place:]):
            slots._memory[:SLOT_BYTES] = half
            found.append(Reader(slots, 0, FIRST).latest())
            assert reader.latest() in (orders(1), orders(2))
    assert all(each in (FIRST, orders(1), orders(2)) for each in found)
    assert sum(each is FIRST for each in found) > len(found) // 2
    slots._memory[:SLOT_BYTES] = after
    assert reader.latest() == orders(2)


def test_another_process_reads_nothing_but_whole_orders_while_they_are_written() -> None:
    slots = Slots(1)
    slots.write(0, orders(0))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            reader, seen = Reader(slots, 0, orders(0)), set()
            until = time.monotonic() + 20
            while reader.latest().pace != 3000 and time.monotonic() < until:
                found = reader.latest()
                seen.add(found.pace)
                assert found == orders(int(found.pace))
            status = 0 if len(seen) > 5 and reader.latest() == orders(3000) else 2
        finally:
            os._exit(status)
    for number in range(3001):
        slots.write(0, orders(number))
        if number % 50 == 0:
            time.sleep(0.001)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_slots_are_taken_and_given_back() -> None:
    slots = Slots(2)
    taken = {slots.take(), slots.take()}
    assert taken == {0, 1}
    assert slots.take() is None
    slots.give_back(1)
    assert slots.take() == 1


def test_orders_of_as_many_lanes_as_a_race_has_fit() -> None:
    slots = Slots(1)
    lanes = tuple(DecodeSettings(seed=2**31 - 1 - lane, tau=1 / (3 + lane)) for lane in range(8))
    slots.write(0, Orders(2**40, 9999.5, lanes, (True,) * 8))
    assert slots.read(0) is not None


@pytest.mark.parametrize("field", ["version", "length", "checksum"])
def test_a_head_that_makes_no_sense_is_not_taken(field: str) -> None:
    slots = Slots(1)
    slots.write(0, FIRST)
    at = {"version": 0, "length": 8, "checksum": 12}[field]
    slots._memory[at : at + 2] = b"\xff\xff"
    assert slots.read(0) is None
