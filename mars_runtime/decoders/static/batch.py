"""Rows decoded by captured steps: the interface of ``CursorBatch``, the work on the device.

The host starts steps and reads their records later, so it may be some steps behind: what it knows
of a row (``CapturedRow``) are bounds. What it does to rows in between takes its place in the
device's queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mars_runtime.acceptance import NO_NUMBER, DecodeError
from mars_runtime.decoders.base import (
    PREFILL_CHUNK,
    Batch,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
    check_room,
    prefill,
)
from mars_runtime.decoders.drafting import BlockSizes, Outlook
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.static.state import (
    IS_LIVE,
    MAX_QUERIES,
    RowRecord,
    Shape,
    State,
    split_record,
)
from mars_runtime.decoders.static.step import StaticModel, StaticStep
from mars_runtime.events import FINAL, RowStep, Step
from mars_runtime.loops import up_to_loop
from mars_runtime.model.graphs import Arrival, new_runner
from mars_runtime.model.shapes import ShapeVocabulary
from mars_runtime.settings import METRICS, DecodeSettings, captured

BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
"""B is rounded up to one of these, so that moving it seldom asks for another capture."""

CONTEXT_STEP = 64
FIRST_CONTEXT = 128


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
        self._rows: list[CapturedRow] = []
        self._pending: deque[PendingStep] = deque()
        self._num_started = 0
        self._told: list[tuple[CapturedRow, InForce | None]] = []
        self._waiting: deque[Step] = deque()
        self.set_costs(costs)

    def set_costs(self, costs: ForwardCosts | None) -> None:
        """Choose B by these costs from now on, and by what is seen from now on."""
        self._costs = costs
        self._sizes = BlockSizes(costs) if costs is not None else None

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the rows, in the order of their places."""
        return tuple(row.number for row in self._rows)

    def has_room_for(self, num_rows: int, capacity: int) -> bool:
        """Whether so many rows of so many tokens each would fit if it were empty."""
        return num_rows <= self.cache.rows and capacity <= self._capacity

    @torch.inference_mode()
    def join(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> None:
        """Take a free place for a prompt that is to be ``read``. Raises DecodeError."""
        limit = settings().max_new_tokens
        check_prompt(self._model, prompt, limit)
        place = len(self._rows)
        if place == self.cache.rows:
            raise DecodeError(f"All {place} rows are taken: wait until one is finished.")
        check_room(prompt, limit, self._capacity)
        self.cache.clear(place)
        self._rows.append(CapturedRow(number, settings, limit, prompt[-1], list(prompt[:-1])))
        if len(prompt) == 1:
            self._open(place)

    @torch.inference_mode()
    def read(self, number: int, at_most: int = PREFILL_CHUNK) -> int:
        """Feed the next part of a prompt, without head; returns how many tokens are left to read.

        The last prompt token is left to the first step. Raises KeyError.
        """
        place = self._place(number)
        row = self._rows[place]
        alone = self.cache.row(place)
        alone.cursors[0] = row.cursor
        if prefill(self._model, alone, row.unread, at_most):
            row.cursor = alone.cursors[0]
            if not row.unread:
                self._open(place)
        return len(row.unread)

    @torch.inference_mode()
    def drop(self, number: int) -> None:
        """Let a row go, finished or not; its place is free at once. Raises KeyError."""
        place, last = self._place(number), len(self._rows) - 1
        state = self._state
        if place != last:
            self.cache.cursors[last] = min(self._rows[last].furthest_cursor, self.cache.capacity)
            self.cache.move(last, place)
            state.numbers[place].copy_(state.numbers[last])
            state.pending[place].copy_(state.pending[last])
        state.numbers[last, IS_LIVE].zero_()
        self._rows[place].is_gone = True
        self._rows[place] = self._rows[last]
        self._rows.pop()
        self._waiting = deque(
            replace(event, rows=tuple(row for row in event.rows if row.row != number))
            for event in self._waiting
        )

    def gather(self, numbers: Sequence[int]) -> None:
        """Nothing to do: rows that sit out a step may stand anywhere."""

    @torch.inference_mode()
    def step(self, numbers: Sequence[int] | None = None) -> Step:
        """The next event: one forward of these rows, by default of all that are read. Rows that end
        (EOS, limit or loop) are dropped.

        ``numbers`` may only be given with one step per read. Raises DecodeError with the numbers of
        the rows whose logits were no numbers; the others lose nothing, their event comes next.
        """
        assert numbers is None or self._steps_per_read == 1
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                if event.rows:
                    return event
            began = time.perf_counter()
            self._start_steps(numbers)
            done = self._read_step(self._pending.popleft())
            # Of several under way, nobody knows what one took.
            if self._costs is not None and self._steps_per_read == 1:
                self._costs.note(done, time.perf_counter() - began)

    def _start_steps(self, numbers: Sequence[int] | None) -> None:
        rows = [row for row in self._rows if not row.unread]
        if numbers is not None:
            rows = [row for row in rows if row.number in set(numbers)]
        while len(self._pending) < self._steps_per_read:
            if self._pending and not any(row.is_likely_to_go_on for row in rows):
                break
            self._start(rows)

    def _start(self, rows: list[CapturedRow]) -> None:
        """Start a step of these rows under the settings of this moment."""
        in_force = read_settings(rows, self._sizes, self._vocabulary.mask_id is not None)
        shape = shape_for(in_force, len(self._rows), self.cache.rows, self.cache.capacity)
        self._tell([(row, in_force.get(row)) for row in self._rows])
        self.runner.run(shape, lambda: self._step(shape))
        slot = self._num_started % self._steps_per_read
        arrival = self.runner.fetch(self._state.ring[slot, : shape.record_size])
        self._num_started += 1
        for row, now in in_force.items():
            row.under_way.append(now)
        places = tuple(row if row in in_force else None for row in self._rows)
        self._pending.append(PendingStep(shape, places, arrival))

    def _tell(self, told: list[tuple[CapturedRow, InForce | None]]) -> None:
        """Bring the settings to the device where they, or the places of the rows, have changed."""
        if told == self._told:
            return
        wholes = [row.wholes(now) for row, now in told]
        reals = [
            [now.settings.tau, now.settings.temperature, now.settings.top_p] if now else [0.0] * 3
            for _, now in told
        ]
        self._put(self._state.wholes[: len(told)], wholes)
        self._put(self._state.reals[: len(told)], reals)
        self._told = told

    def _read_step(self, step: PendingStep) -> Step:
        """Make an event of a step, which then waits to be given out; drop the rows that ended.
        Raises DecodeError."""
        records = split_record(step.arrival.wait(), step.shape)
        events: list[RowStep] = []
        broken: list[int] = []
        for row, record in zip(step.rows, records, strict=False):
            if row is None or row.is_gone:
                continue
            now = row.under_way.popleft()
            if record.is_broken:
                broken.append(row.number)
                continue
            event = row.settle(record, step.shape.num_queries, now.settings)
            events.append(event)
            if row.outlook is not None and now.settings.is_auto:
                num_drafts = record.num_fed_drafts
                proposed = len(event.proposals) - num_drafts
                row.outlook.observe(record.judgement(event), num_drafts, proposed)
        for event in events:
            if event.stop in FINAL:
                self.drop(event.row)
        done = Step(tuple(events))
        self._waiting.append(done)
        if broken:
            raise DecodeError(NO_NUMBER, tuple(broken))
        return done

    def _open(self, place: int) -> None:
        """Make the row of a prompt that has been read a live one."""
        row = self._rows[place]
        self._put(self._state.numbers[place], [1, row.cursor, 1, 0, 0])
        self._put(self._state.pending[place, :1], [row.first])

    def _place(self, number: int) -> int:
        if number not in self.rows:
            raise KeyError(number)
        return self.rows.index(number)

    def _put(self, target: Tensor, values: Sequence[object]) -> None:
        """Write numbers of the host without waiting for the device."""
        is_cuda = target.device.type == "cuda"
        source = torch.tensor(values, dtype=target.dtype, pin_memory=is_cuda)
        target.copy_(source, non_blocking=True)


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
class CapturedRow:
    """A row. cursor, num_pending: as of the last step that was read.

    unread: prompt tokens still to be fed; first: the last prompt token, pending at the start.
    under_way: what is in force in its steps that were started and not yet read. written: all that
    was emitted.
    """

    number: int
    settings: SettingsSource
    limit: int
    first: int
    unread: list[int]
    cursor: int = 0
    num_pending: int = 1
    written: list[int] = field(default_factory=list)
    num_steps: int = 0
    under_way: deque[InForce] = field(default_factory=deque)
    is_gone: bool = False
    outlook: Outlook | None = None

    @property
    def most_pending(self) -> int:
        """Bound of the pending tokens when the next step starts."""
        return self.under_way[-1].most_kept if self.under_way else self.num_pending

    @property
    def furthest_cursor(self) -> int:
        """Bound of the cursor when the next step starts: it moves by the pending tokens at most."""
        moves = [self.num_pending, *(step.most_kept for step in self.under_way)]
        return self.cursor + sum(moves[: len(self.under_way)])

    @property
    def is_likely_to_go_on(self) -> bool:
        """Whether its limit is out of reach of the steps under way, at its rate so far."""
        rate = len(self.written) / self.num_steps if self.num_steps else 1.0
        limit = min(self.limit, self.settings().max_new_tokens)
        return len(self.written) + len(self.under_way) * rate < limit

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
        """Learn what a step did, and tell it as an event. The device does not know of loops: what
        it takes beyond the end of one is dropped."""
        event = record.event(self.number, num_fed, settings)
        if settings.stop_loops and (count := up_to_loop(self.written, event.accepted)) is not None:
            kept = event.accepted[:count]
            event = replace(event, accepted=kept, num_drafted=0, guessed=(), stop="repeats")
        self.cursor, self.num_pending = record.next_cursor, record.next_pending
        self.written += event.accepted
        self.num_steps += 1
        return event


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step that was started: its shape, and for each place the row that took part in it."""

    shape: Shape
    rows: tuple[CapturedRow | None, ...]
    arrival: Arrival


def read_settings(
    rows: Sequence[CapturedRow], sizes: BlockSizes | None, has_mask: bool
) -> dict[CapturedRow, InForce]:
    """Read the settings of the rows of the next step and choose B where they leave it open.

    Raises DecodeError with the numbers of the rows that ask for what there is not.
    """
    settings = {row: captured(row.settings()) for row in rows}
    asked = [(row, now) for row, now in settings.items() if now.is_auto]
    if asked and sizes is None:
        sentence = "What forwards cost here was not measured: choose a number as B."
        raise DecodeError(sentence, tuple(row.number for row, _ in asked))
    chosen = sizes.choose(asked) if asked and sizes else 1
    block_sizes = {
        row: chosen if now.is_auto else now.num_proposals for row, now in settings.items()
    }
    masked = [row.number for row, size in block_sizes.items() if size > 1]
    if masked and not has_mask:
        raise NoMaskError(tuple(masked))
    return {row: InForce(now, block_sizes[row]) for row, now in settings.items()}


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
    in_force: Mapping[CapturedRow, InForce], max_running: int, most_rows: int, capacity: int
) -> Shape:
    """The shape of the next step of these rows."""
    settings = [now.settings for now in in_force.values()]
    # Guesses are written behind what a step keeps, so there must be room for all of them.
    pending = [max(row.most_pending, now.settings.num_guesses + 1) for row, now in in_force.items()]
    block = block_bucket(pending, [now.block_size for now in in_force.values()])
    num_queries = 2 * block - 1
    verifies = any(each.is_verified for each in settings)
    furthest = max(row.furthest_cursor for row in in_force)
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


class StepProbe:
    """Steps of ``num_rows`` rows whose attention reads ``context`` tokens and what is fed."""

    def __init__(self, model: StaticModel, num_rows: int, context: int) -> None:
        room = -(-(context + MAX_QUERIES) // CONTEXT_STEP) * CONTEXT_STEP
        self._num_rows, self._context, self._room = num_rows, context, room
        vocabulary = ShapeVocabulary(size=model.config.vocab_size, mask_id=None)
        with torch.inference_mode():
            state = State.new(num_rows, 1, model.device)
            self._step = StaticStep(model, vocabulary, model.new_cache(num_rows, room), state)
        self._runner = new_runner(model.device, state.changed)

    @torch.inference_mode()
    def run(self, num_queries: int) -> None:
        """Start one step that feeds ``num_queries`` tokens per row, at most MAX_QUERIES, and reads
        half of them, as with Q = 2B - 1. Captured at the first call of each width."""
        context = context_bucket(self._context + num_queries, self._room)
        shape = Shape(self._num_rows, num_queries, (num_queries + 1) // 2, context)
        self._runner.run(shape, lambda: self._step(shape))
