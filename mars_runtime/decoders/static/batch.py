"""Rows that are decoded by static steps: the interface of ``CursorBatch``, the work on the device.

The host starts steps and reads their records later, so it may be some steps behind; what it does
to rows in between takes its place in the device's queue. Knows no clock, text or engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mars_runtime.acceptance import NO_NUMBER, DecodeError
from mars_runtime.decoders.adaptive import ForwardCosts, Pilot
from mars_runtime.decoders.base import (
    PREFILL_CHUNK,
    Batch,
    SettingsSource,
    Vocabulary,
    check_prompt,
    check_room,
)
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.static.records import split_record
from mars_runtime.decoders.static.seats import (
    CONTEXT_STEP,
    Flight,
    InForce,
    Seat,
    read_settings,
    shape_for,
)
from mars_runtime.decoders.static.state import IS_LIVE, MAX_QUERIES, State
from mars_runtime.decoders.static.step import StaticModel, StaticStep
from mars_runtime.events import RowStep, Step
from mars_runtime.model.graphs import new_runner


class StaticBatch(Batch):
    """Rows on one cache; ``add`` and ``drop`` between steps, ``step`` gives one event at a time.

    steps_per_read: how many steps may be under way before one is read. With 1 a step obeys the
    settings at the moment of the call; with more, settings, new rows and rows that leave take
    effect that many steps later at most, and the device never waits for the host. It tells no bytes
    (it may be kept for the next run) and no checks (captured steps keep no hidden states).
    """

    def __init__(
        self,
        model: StaticModel,
        vocabulary: Vocabulary,
        num_rows: int,
        capacity: int,
        costs: ForwardCosts | None = None,
        *,
        steps_per_read: int = 1,
        forced: ForcedAcceptance | None = None,
    ) -> None:
        """Room for ``num_rows`` rows of ``capacity`` tokens each, prompt and answer together.

        costs: of forwards on this device; without them no row can leave B to be chosen.
        forced: take as many tokens per step as a histogram says, for timing random weights.
        """
        self._model = model
        self._vocabulary = vocabulary
        self._capacity = capacity
        room = -(-(capacity + MAX_QUERIES) // CONTEXT_STEP) * CONTEXT_STEP
        self.cache = model.new_cache(num_rows, room)
        with torch.inference_mode():
            self._state = State.new(num_rows, steps_per_read, model.device)
            self._step = StaticStep(model, vocabulary, self.cache, self._state, forced)
        self.runner = new_runner(model.device, self._state.changed)
        self._steps_per_read = steps_per_read
        self._seats: list[Seat] = []
        self._flights: deque[Flight] = deque()
        self._num_started = 0
        self._told: list[tuple[Seat, InForce | None]] = []
        self._waiting: deque[Step] = deque()
        self.set_costs(costs)

    def set_costs(self, costs: ForwardCosts | None) -> None:
        """Choose B by these costs from now on, and by what is seen from now on."""
        self._pilot = Pilot(costs) if costs is not None else None

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the rows, in the order of their places."""
        return tuple(seat.number for seat in self._seats)

    def has_room_for(self, num_rows: int, capacity: int) -> bool:
        """Whether so many rows of so many tokens each would fit if it were empty."""
        return num_rows <= self.cache.rows and capacity <= self._capacity

    @torch.inference_mode()
    def join(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> None:
        """Take a free place for a prompt that is to be ``read``. Raises DecodeError."""
        limit = settings().max_new_tokens
        check_prompt(self._model, prompt, limit)
        place = len(self._seats)
        if place == self.cache.rows:
            raise DecodeError(f"All {place} rows are taken: wait until one is finished.")
        check_room(prompt, limit, self._capacity)
        self.cache.clear(place)
        self._seats.append(Seat(number, settings, limit, prompt[-1], list(prompt[:-1])))
        if len(prompt) == 1:
            self._open(place)

    @torch.inference_mode()
    def read(self, number: int, at_most: int = PREFILL_CHUNK) -> int:
        """Feed the next part of a prompt, without head; returns how many tokens are left to read.

        The last prompt token is left to the first step. Raises KeyError.
        """
        place = self._place(number)
        seat = self._seats[place]
        chunk = seat.unread[:at_most]
        if chunk:
            alone = self.cache.row(place)
            alone.cursors[0] = seat.cursor
            self._model.forward(torch.tensor([chunk], device=self._model.device), alone, None)
            seat.cursor += len(chunk)
            del seat.unread[:at_most]
            if not seat.unread:
                self._open(place)
        return len(seat.unread)

    @torch.inference_mode()
    def drop(self, number: int) -> None:
        """Let a row go, finished or not; its place is free at once. Raises KeyError."""
        place, last = self._place(number), len(self._seats) - 1
        state = self._state
        if place != last:
            self.cache.cursors[last] = min(self._seats[last].furthest_cursor, self.cache.capacity)
            self.cache.move(last, place)
            state.numbers[place].copy_(state.numbers[last])
            state.pending[place].copy_(state.pending[last])
        state.numbers[last, IS_LIVE].zero_()
        self._seats[place].is_gone = True
        self._seats[place] = self._seats[last]
        self._seats.pop()
        self._waiting = deque(
            replace(event, rows=tuple(row for row in event.rows if row.row != number))
            for event in self._waiting
        )
        if self._pilot is not None:
            self._pilot.forget(number)

    def seat(self, numbers: Sequence[int]) -> None:
        """Nothing to do: rows that sit out a step may stand anywhere."""

    @torch.inference_mode()
    def step(self, numbers: Sequence[int] | None = None) -> Step:
        """The next event: one forward of these rows, by default of all that are read. Rows that end
        (EOS or limit) are dropped.

        ``numbers`` may only be given with one step per read. Raises DecodeError with the numbers of
        the rows whose logits were no numbers; the others lose nothing, their event comes next.
        """
        assert numbers is None or self._steps_per_read == 1
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                if event.rows:
                    return event
            self._start_steps(numbers)
            self._read_step(self._flights.popleft())

    def _start_steps(self, numbers: Sequence[int] | None) -> None:
        seats = [seat for seat in self._seats if not seat.unread]
        if numbers is not None:
            seats = [seat for seat in seats if seat.number in set(numbers)]
        while len(self._flights) < self._steps_per_read:
            if self._flights and not any(seat.is_likely_to_go_on for seat in seats):
                break
            self._start(seats)

    def _start(self, seats: list[Seat]) -> None:
        """Start a step of these rows under the settings of this moment."""
        in_force = read_settings(seats, self._pilot, self._vocabulary.mask_id is not None)
        shape = shape_for(in_force, len(self._seats), self.cache.rows, self.cache.capacity)
        self._tell([(seat, in_force.get(seat)) for seat in self._seats])
        self.runner.run(shape, lambda: self._step(shape))
        slot = self._num_started % self._steps_per_read
        arrival = self.runner.fetch(self._state.ring[slot, : shape.record_size])
        self._num_started += 1
        for seat, now in in_force.items():
            seat.flying.append(now)
        places = tuple(seat if seat in in_force else None for seat in self._seats)
        self._flights.append(Flight(shape, places, arrival))

    def _tell(self, told: list[tuple[Seat, InForce | None]]) -> None:
        """Bring the settings to the device where they, or the places of the rows, have changed."""
        if told == self._told:
            return
        wholes = [seat.wholes(now) for seat, now in told]
        reals = [
            [now.settings.tau, now.settings.temperature, now.settings.top_p] if now else [0.0] * 3
            for _, now in told
        ]
        self._put(self._state.wholes[: len(told)], wholes)
        self._put(self._state.reals[: len(told)], reals)
        self._told = told

    def _read_step(self, flight: Flight) -> None:
        """Make an event of a step; drop the rows that ended. Raises DecodeError."""
        records = split_record(flight.arrival.wait(), flight.shape)
        events: list[RowStep] = []
        broken: list[int] = []
        for seat, record in zip(flight.seats, records, strict=False):
            if seat is None or seat.is_gone:
                continue
            now = seat.flying.popleft()
            if record.is_broken:
                broken.append(seat.number)
                continue
            event = seat.settle(record, flight.shape.num_queries, now.settings)
            events.append(event)
            if self._pilot is not None and now.settings.is_auto:
                proposed = len(event.proposals) - record.num_fed_drafts
                self._pilot.observe(
                    seat.number, record.verdict(event), record.num_fed_drafts, proposed
                )
        for event in events:
            if event.stop in ("eos", "limit"):
                self.drop(event.row)
        if events:
            self._waiting.append(Step(tuple(events)))
        if broken:
            raise DecodeError(NO_NUMBER, tuple(broken))

    def _open(self, place: int) -> None:
        """Make the row of a prompt that has been read a live one."""
        seat = self._seats[place]
        self._put(self._state.numbers[place], [1, seat.cursor, 1, 0, 0])
        self._put(self._state.pending[place, :1], [seat.first])

    def _place(self, number: int) -> int:
        if number not in self.rows:
            raise KeyError(number)
        return self.rows.index(number)

    def _put(self, target: Tensor, values: Sequence[object]) -> None:
        """Write numbers of the host without waiting for the device."""
        is_cuda = target.device.type == "cuda"
        source = torch.tensor(values, dtype=target.dtype, pin_memory=is_cuda)
        target.copy_(source, non_blocking=True)
