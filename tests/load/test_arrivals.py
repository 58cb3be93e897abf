"""Arrivals: seeded, in order, at the rate that was asked for."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.traffic.arrivals import (
    ArrivalsError,
    bursts,
    check,
    poisson,
    rate_of,
    read_recorded,
)


@given(st.floats(0.1, 50), st.floats(0.1, 20), st.integers(0, 1000))
def test_arrivals_are_in_order_within_their_time_and_the_same_for_a_seed(
    rate: float, seconds: float, seed: int
) -> None:
    for kind in (poisson, bursts):
        found = kind(rate, seconds, seed)
        assert list(found) == sorted(found)
        assert all(0 <= moment < seconds for moment in found)
        assert found == kind(rate, seconds, seed)


@pytest.mark.parametrize("kind", [poisson, bursts])
def test_the_rate_is_kept_on_average(kind) -> None:
    counts = [len(kind(8.0, 50.0, seed)) for seed in range(60)]
    assert statistics.mean(counts) == pytest.approx(400, rel=0.06)


def test_gaps_of_poisson_are_exponential_and_bursts_come_together() -> None:
    gaps = [b - a for a, b in pairwise(poisson(10.0, 2000.0, 1))]
    assert statistics.mean(gaps) == pytest.approx(0.1, rel=0.03)
    assert statistics.pstdev(gaps) == pytest.approx(0.1, rel=0.05)
    crowded = [b - a for a, b in pairwise(bursts(10.0, 2000.0, 1))]
    assert statistics.pstdev(crowded) > 1.5 * statistics.pstdev(gaps)


def test_what_was_recorded_is_read_in_order() -> None:
    assert read_recorded("0.5, 0,2") == (0.0, 0.5, 2.0)
    assert read_recorded("[1, 0.25]") == (0.25, 1.0)
    assert rate_of((0.0, 0.5, 2.0)) == 1.5
    assert rate_of(()) == rate_of((0.0,)) == 0.0


@pytest.mark.parametrize(
    "bad", ["", "soon", "[", "-1", "nan", "[1e999]", "[true]", "[[1]]", "[" * 10_000, "{}"]
)
def test_what_is_no_list_of_seconds_is_one_sentence(bad: str) -> None:
    with pytest.raises(ArrivalsError, match="Give the arrivals as seconds"):
        read_recorded(bad)


def test_a_list_may_not_be_endless_nor_hold_what_is_no_moment() -> None:
    for bad in ([0.0] * 10_001, None, [math.inf], [None], 3):
        with pytest.raises(ArrivalsError):
            check(bad)
