"""Estimates on numbers small enough to check by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.runs import statistics
from mars_runtime.runs.statistics import Estimate

FLOATS = st.floats(min_value=0.01, max_value=100.0)


def test_wilson_matches_the_textbook_and_keeps_an_interval_at_the_ends():
    # 8 of 10 with z = 1.96: centre (0.8 + 0.192) / 1.384, half 0.226.
    actual = statistics.wilson(8, 10)
    assert actual.value == 0.8
    assert actual.low == pytest.approx(0.4902, abs=5e-4)
    assert actual.high == pytest.approx(0.9433, abs=5e-4)
    none, every = statistics.wilson(0, 50), statistics.wilson(50, 50)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(0.0714, abs=5e-4)
    assert (every.value, every.low, every.high) == pytest.approx((1.0, 1 - none.high, 1.0))


def test_mean_of_shares_counts_families_alike_and_narrows_with_their_number():
    single, wilson = statistics.mean_of_shares([(8, 10)]), statistics.wilson(8, 10)
    assert (single.value, single.low, single.high) == pytest.approx(
        (wilson.value, wilson.low, wilson.high)
    )
    assert statistics.mean_of_shares([(10, 10), (0, 40)]).value == pytest.approx(0.5)
    assert statistics.mean_of_means([[1.0], [3.0, 3.0, 3.0]]) == Estimate(2.0, 2.0, 2.0)
    all_right = statistics.mean_of_shares([(50, 50)] * 4)
    assert all_right.high == 1.0
    # The interval of one share is 0.0714 wide; that of four is half as wide.
    assert all_right.low == pytest.approx(1 - 0.0714 / 2, abs=5e-4)


def test_bootstrap_of_a_mean_agrees_with_the_normal_interval_and_repeats():
    values = [0.0, 1.0] * 100
    actual = statistics.mean(values)
    half = 1.96 * 0.5 / math.sqrt(200)
    assert actual.value == 0.5
    assert actual.low == pytest.approx(0.5 - half, abs=0.006)
    assert actual.high == pytest.approx(0.5 + half, abs=0.006)
    assert statistics.mean(values) == actual


def test_ratios_average_geometrically():
    actual = statistics.median_ratio([[2.0, 4.0, 8.0]])
    assert (actual.value, actual.low, actual.high) == pytest.approx((4.0, 2.0, 8.0))
    assert statistics.median_ratio([[2.0, 0.5]]).value == pytest.approx(1.0)
    assert statistics.median_ratio([[2.0], [8.0, 8.0, 8.0]]).value == pytest.approx(4.0)


@pytest.mark.parametrize(
    "call",
    [
        *(lambda item=item: statistics.wilson(*item) for item in ((1, 0), (-1, 5), (6, 5))),
        lambda: statistics.mean_of_shares([]),
        *(lambda bad=bad: statistics.mean(bad) for bad in ([], [math.nan])),
        lambda: statistics.median([math.inf]),
        lambda: statistics.median_ratio([[0.0]]),
    ],
)
def test_nothing_and_non_numbers_are_refused(call):
    with pytest.raises(ValueError, match=r"\.$"):
        call()


@given(st.lists(FLOATS, min_size=1, max_size=12), st.integers(0, 200), st.integers(1, 200))
def test_intervals_hold_their_value_and_stay_within_the_data(values, right, count):
    slack = 1e-9
    for actual in (statistics.mean(values), statistics.median(values)):
        assert min(values) - slack <= actual.low <= actual.high + slack
        assert actual.high <= max(values) + slack
        assert min(values) - slack <= actual.value <= max(values) + slack
    actual = statistics.wilson(min(right, count), count)
    assert 0.0 <= actual.low <= actual.value <= actual.high <= 1.0
