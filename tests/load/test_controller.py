"""The controller: monotone in the queue, calm on a constant load, within everybody's bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.settings import DecodeSettings, SettingsError
from mars_runtime.traffic.controller import (
    LEVELS,
    Bounds,
    Decision,
    Observation,
    State,
    decide,
    is_late,
    steered,
)
from mars_runtime.traffic.records import Record

QUEUES = st.integers(0, 100)
PLACES = st.integers(1, 32)
LEVEL = st.integers(0, LEVELS)
BOUNDS = st.builds(
    lambda taus, sizes: Bounds(*sorted(taus), *sorted(sizes)),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.integers(1, 16), st.integers(1, 16)),
)


def seen(queue: int, places: int = 4, *records: Record, at: float = 0.0) -> Observation:
    return Observation(at, queue, places, records)


@given(LEVEL, QUEUES, QUEUES, PLACES)
def test_a_longer_queue_never_calms(level: int, queue: int, more: int, places: int) -> None:
    state = State(level)
    short, _ = decide(state, seen(queue, places))
    long, _ = decide(state, seen(queue + more, places))
    assert long.level >= short.level


@given(LEVEL, QUEUES, PLACES, st.integers(2, 20))
def test_a_constant_load_moves_it_once(level: int, queue: int, places: int, times: int) -> None:
    first, _ = decide(State(level), seen(queue, places))
    state = first
    for _ in range(times):
        state, _ = decide(state, seen(queue, places))
        assert state == first


@given(LEVEL, QUEUES, PLACES)
def test_a_queue_that_sways_by_one_flaps_nothing(level: int, queue: int, places: int) -> None:
    state, levels = State(level), []
    for turn in range(10):
        state, _ = decide(state, seen(queue + turn % 2, places))
        levels.append(state.level)
    assert len(set(levels[1:])) == 1


def test_levels_of_four_places_by_hand() -> None:
    state, levels = State(), []
    for queue in (0, 1, 2, 3, 4, 3, 2, 8, 20, 7, 6, 5, 4, 1, 0):
        state, decision = decide(state, seen(queue))
        levels.append(decision.level)
    #         0  1  2  3  4  3  2  8  20 7  6  5  4  1  0
    assert levels == [0, 0, 1, 1, 2, 2, 1, 4, 4, 4, 3, 3, 2, 1, 0]


@given(BOUNDS, LEVEL, st.booleans(), st.booleans(), st.floats(0, 1))
def test_no_request_ever_leaves_its_own_bounds(
    bounds: Bounds, level: int, is_lossless: bool, late: bool, tau: float
) -> None:
    settings = DecodeSettings(tau=tau, lossless=is_lossless)
    decision = Decision(0.0, 0, level, frozenset({7} if late else ()))
    found = steered(settings, bounds, decision, 7)
    if is_lossless:
        assert bounds.least <= found.num_proposals <= bounds.most
        assert (found.lossless, found.tau) == (True, tau)
    else:
        assert bounds.low <= found.tau <= bounds.high
        assert found.block_size == settings.block_size


@given(BOUNDS, LEVEL, LEVEL)
def test_a_higher_level_lowers_tau_and_drafts_less(bounds: Bounds, one: int, other: int) -> None:
    calm, bold = (Decision(0.0, 0, level, frozenset()) for level in sorted((one, other)))
    free, exact = DecodeSettings(), DecodeSettings(lossless=True)
    assert steered(free, bounds, calm, 0).tau >= steered(free, bounds, bold, 0).tau
    first, second = (steered(exact, bounds, each, 0).num_proposals for each in (calm, bold))
    assert first >= second


def test_ends_of_the_bounds_are_reached_and_plain_ar_is_left_alone() -> None:
    bounds = Bounds(0.3, 0.9, 2, 8)
    for level, tau, size in ((0, 0.9, 8), (2, 0.6, 5), (LEVELS, 0.3, 2)):
        decision = Decision(0.0, 0, level, frozenset())
        assert steered(DecodeSettings(), bounds, decision, 0).tau == tau
        assert steered(DecodeSettings(lossless=True), bounds, decision, 0).block_size == size
    late = Decision(0.0, 0, LEVELS, frozenset({1}))
    assert steered(DecodeSettings(lossless=True), bounds, late, 1).block_size == 8
    assert steered(DecodeSettings(), bounds, late, 1).tau == 0.3
    plain = DecodeSettings("ar")
    assert steered(plain, bounds, late, 1) is plain


def test_who_is_late() -> None:
    assert not is_late(Record(0, 0.0), 1e9)  # nobody waits for it
    waiting = Record(0, 10.0, 11, budget=4.0)
    assert not is_late(waiting, 12.0)
    assert is_late(waiting, 12.1)
    writing = Record(0, 0.0, 11, budget=4.0, first=1.0, tokens=(1, 2, 3, 4, 5, 6))
    assert not is_late(writing, 2.0)  # 5 tokens in 1 s, 5 more to come: 3 s
    assert is_late(writing, 2.6)  # 5 tokens in 1.6 s: 4.2 s


def test_who_is_late_stays_so_until_it_is_over() -> None:
    record = Record(1, 0.0, 11, budget=4.0)
    state, decision = decide(State(), seen(0, 4, record, at=3.0))
    assert decision.late == {1}
    caught_up = Record(1, 0.0, 11, budget=4.0, first=3.0, tokens=tuple(range(10)))
    state, decision = decide(state, seen(0, 4, caught_up, at=3.1))
    assert decision.late == {1}
    state, decision = decide(state, seen(0, 4))
    assert decision.late == frozenset()


@pytest.mark.parametrize(
    "bad", [(0.9, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5), (0, 1, 0), (0, 1, 5, 4)]
)
def test_bounds_that_are_none(bad) -> None:
    with pytest.raises(SettingsError, match="bounds of"):
        Bounds(*bad)
