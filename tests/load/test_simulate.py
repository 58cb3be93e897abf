"""The simulation: cases solved by hand, queueing theory, and its own promises."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime.traffic.arrivals import poisson
from mars_runtime.traffic.simulate import (
    HOURS,
    Costs,
    Fleet,
    day_arrivals,
    day_share,
    enough,
    fleets,
    simulate,
)

ONE = Costs(alone=1.0, full=1.0, places=1, forwards=(2,))


def test_one_place_and_arrivals_at_a_steady_pace() -> None:
    """A request takes 2 s: every second one brings a second more to wait for each that follows."""
    assert simulate(ONE, [0, 1, 2, 3], [2] * 4, 1) == [2, 3, 4, 5]
    assert simulate(ONE, [0, 1, 2, 3], [2] * 4, 2) == [2, 2, 2, 2]
    assert simulate(ONE, [0, 5, 10], [2] * 3, 1) == [2, 2, 2]
    assert simulate(ONE, [], [], 3) == []


def test_requests_that_share_a_machine_slow_each_other() -> None:
    """Two of 4 and 2 forwards at 1.5 s each together, 1 s alone: the short one ends at 3 s, the
    other has 2 left, alone."""
    costs = Costs(alone=1.0, full=1.5, places=2, forwards=(2, 4))
    assert simulate(costs, [0, 0], [4, 2], 1) == [5.0, 3.0]
    assert simulate(costs, [0, 0, 0], [4, 2, 1], 1) == [5.5, 3.0, 4.5]
    assert simulate(costs, [0, 0], [4, 2], 2) == [4.0, 2.0]
    assert costs.capacity == 2 / (3 * 1.5)


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_the_mean_wait_is_that_of_an_m_m_1_queue(load: float) -> None:
    """Poisson arrivals, exponential service of mean 1: a request takes 1 / (1 - load) on average
    (Kleinrock 1975)."""
    arrivals = poisson(load, 15_000 / load, seed=5)
    rng = random.Random(7)
    found = simulate(ONE, arrivals, [rng.expovariate(1.0) for _ in arrivals], 1)
    assert statistics.mean(found) == pytest.approx(1 / (1 - load), rel=0.06)


def test_the_mean_of_many_places_is_that_of_processor_sharing() -> None:
    """M/M/1 with places for all, each at its share of the pace: the same mean as first come, first
    served (Kleinrock 1967), here with a pace that falls in proportion."""
    costs = Costs(alone=1.0, full=200.0, places=200, forwards=(1,))
    arrivals = poisson(0.6, 25_000, seed=5)
    rng = random.Random(7)
    found = simulate(costs, arrivals, [rng.expovariate(1.0) for _ in arrivals], 1)
    assert statistics.mean(found) == pytest.approx(2.5, rel=0.06)


REQUESTS = st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=30)


@settings(max_examples=60)
@given(REQUESTS, st.integers(1, 4), st.integers(1, 4))
def test_no_request_is_lost_nor_faster_than_alone(requests, places: int, machines: int) -> None:
    arrivals = sorted(arrived for arrived, _ in requests)
    work = [forwards for _, forwards in requests]
    costs = Costs(0.5, 0.5 * places**0.5, places, (1,))
    found = simulate(costs, arrivals, work, machines)
    assert len(found) == len(requests)
    for took, forwards in zip(found, work, strict=True):
        assert took >= 0.5 * forwards - 1e-6
    roomy = simulate(costs, arrivals, work, len(requests))
    assert roomy == pytest.approx([0.5 * forwards for forwards in work])


def test_a_day_has_a_quiet_and_a_busy_hour_and_is_the_same_for_a_seed() -> None:
    found = day_arrivals(5.0, 60.0, seed=1)
    assert found == day_arrivals(5.0, 60.0, seed=1) != day_arrivals(5.0, 60.0, seed=2)
    hours = [sum(int(at // 60) == hour for at in found) for hour in range(HOURS)]
    assert day_share(16) == 1.0
    assert day_share(4) == pytest.approx(0.15)
    assert hours[16] == pytest.approx(300, rel=0.2)
    assert hours[4] < 80


def test_more_machines_bring_p99_down_and_the_fewest_are_found() -> None:
    costs = Costs(0.01, 0.03, 4, (20, 40, 60))
    found = fleets(costs, day_arrivals(2.5 * costs.capacity, 20.0, 0), 5)
    tails = [fleet.p99 for fleet in found]
    assert tails == sorted(tails, reverse=True)
    assert found == fleets(costs, day_arrivals(2.5 * costs.capacity, 20.0, 0), 5)
    assert enough([Fleet(1, 1, 9), Fleet(2, 1, 3), Fleet(3, 1, 2)], 3.0) == 2
    assert enough([Fleet(1, 1, 9)], 3.0) is None
