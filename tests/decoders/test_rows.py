"""The bookkeeping of rows as pure numbers: places, prompts, pending tokens and drafts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mars_runtime.decoders.rows import Rows
from mars_runtime.settings import DecodeSettings

NUM_PLACES, LIMIT = 4, 40
SETTINGS = DecodeSettings()
DRAFT, MASK = -1, -2


class Paper:
    """A cache on paper: in each place the tokens that were written, wherever they came from."""

    def __init__(self) -> None:
        self.rows = NUM_PLACES
        self.cursors = [0] * NUM_PLACES
        self.written: list[list[int]] = [[] for _ in range(NUM_PLACES)]

    def write(self, place: int, tokens: list[int]) -> None:
        self.written[place][self.cursors[place] :] = tokens

    def clear(self, row: int, num_slots: int) -> None:
        assert len(self.written[row]) <= num_slots, "something of an earlier tenant stays"
        self.cursors[row], self.written[row] = 0, []

    def move(self, source: int, target: int, num_slots: int) -> None:
        self.clear(target, num_slots)
        self.cursors[target] = self.cursors[source]
        self.written[target] = self.written[source][: self.cursors[source]]

    def swap(self, one: int, other: int) -> None:
        for line in (self.cursors, self.written):
            line[one], line[other] = line[other], line[one]  # type: ignore[index]


class Machine(RuleBasedStateMachine):
    """Rows join, are read, decode, sit out, finish, fail and are cancelled in random order.

    Every token of every row is a different number, so that nothing can be mistaken for another's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paper = Paper()
        self.rows = Rows(self.paper)
        self.texts: dict[int, list[int]] = {}  # prompt and emitted tokens of each live row
        self.num_prompt: dict[int, int] = {}
        self.sources: dict[int, Callable[[], DecodeSettings]] = {}
        self.last_number = 0

    @precondition(lambda self: len(self.texts) < NUM_PLACES)
    @rule(length=st.integers(1, 9))
    def submit(self, length: int) -> None:
        assert not self.rows.is_full
        self.last_number += 1
        number = self.last_number
        self.texts[number] = [1000 * number + place for place in range(length)]
        self.num_prompt[number] = length
        self.sources[number] = lambda: SETTINGS
        self.rows.join(number, self.texts[number], self.sources[number], LIMIT)

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), size=st.integers(1, 4))
    def read(self, data: st.DataObject, size: int) -> None:
        place, row = self.rows.find(data.draw(st.sampled_from(sorted(self.texts))))
        chunk = row.unread[:size]
        self.paper.write(place, chunk)
        self.paper.cursors[place] += len(chunk)
        del row.unread[:size]

    @precondition(lambda self: self.rows.ready)
    @rule(data=st.data(), fails=st.booleans())
    def step(self, data: st.DataObject, fails: bool) -> None:
        """A forward of some rows that are read; one that fails has written to the cache too."""
        chosen = data.draw(st.lists(st.sampled_from(self.rows.ready), min_size=1, unique=True))
        seated = self.rows.seat(chosen)
        assert sorted(row.number for row in seated) == sorted(chosen)
        assert self.rows.numbers[: len(seated)] == tuple(row.number for row in seated)
        for place, row in enumerate(seated):
            self.paper.write(place, [*row.pending, MASK])
        if fails:
            return
        for place, row in enumerate(seated):
            num_agreed = data.draw(st.integers(0, row.num_drafts))
            text = self.texts[row.number]
            count = num_agreed + data.draw(st.integers(1, 3))
            emitted = [1000 * row.number + len(text) + i for i in range(count)]
            text += emitted
            self.paper.cursors[place] += len(row.pending) - row.num_drafts + num_agreed
            agreed = self.paper.cursors[place] - num_agreed
            self.paper.written[place][agreed : agreed + num_agreed] = emitted[:num_agreed]
            row.emit(emitted, num_agreed, [DRAFT] * data.draw(st.integers(0, 3)))

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), tau=st.floats(0, 1))
    def change_settings(self, data: st.DataObject, tau: float) -> None:
        """The source is asked anew at every step; the bookkeeping must not keep its answer."""
        number = data.draw(st.sampled_from(sorted(self.texts)))
        row = self.rows.find(number)[1]
        changed = DecodeSettings(tau=tau)
        row.settings = self.sources[number] = lambda: changed
        assert self.rows.find(number)[1].settings() is changed

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Finished, failed and cancelled rows leave in the same way, at any moment."""
        number = data.draw(st.sampled_from(sorted(self.texts)))
        self.rows.drop(number)
        del self.texts[number]
        for unknown in (number, self.last_number + 1):
            for refuse in (self.rows.drop, self.rows.find, lambda n: self.rows.seat([n])):
                with pytest.raises(KeyError):
                    refuse(unknown)

    @invariant()
    def every_row_has_one_place_and_none_is_lost(self) -> None:
        assert sorted(self.rows.numbers) == sorted(self.texts)
        assert self.rows.is_full == (len(self.texts) == NUM_PLACES)
        assert self.paper.cursors[len(self.texts) :] == [0] * (NUM_PLACES - len(self.texts))

    @invariant()
    def cursor_and_pending_are_consistent(self) -> None:
        for number, text in self.texts.items():
            place, row = self.rows.find(number)
            cursor = self.paper.cursors[place]
            final = [*row.unread, *row.pending[: len(row.pending) - row.num_drafts]]
            assert self.paper.written[place][:cursor] + final == text
            assert self.num_prompt[number] + row.num_emitted == len(text)
            assert len(row.pending) > row.num_drafts
            assert row.pending[len(row.pending) - row.num_drafts :] == [DRAFT] * row.num_drafts
            assert (number in self.rows.ready) == (not row.unread)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
