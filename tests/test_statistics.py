"""Estimates on numbers small enough to check by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime import statistics
from mars_runtime.statistics import Estimate

FLOATS = st.floats(min_value=0.01, max_value=100.0)


def test_wilson_matches_the_textbook():
    # 8 of 10 with z = 1.96: centre (0.8 + 0.192) / 1.384, half 0.226.
    found = statistics.wilson(8, 10)
    assert found.value == 0.8
    assert found.low == pytest.approx(0.4902, abs=5e-4)
    assert found.high == pytest.approx(0.9433, abs=5e-4)


def test_wilson_at_the_ends_keeps_an_interval():
    none, every = statistics.wilson(0, 50), statistics.wilson(50, 50)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(0.0714, abs=5e-4)
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(1 - none.high)


@pytest.mark.parametrize(("right", "count"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_share(right: int, count: int):
    with pytest.raises(ValueError, match="share"):
        statistics.wilson(right, count)


def test_mean_of_one_share_is_wilson():
    one, wilson = statistics.mean_of_shares([(8, 10)]), statistics.wilson(8, 10)
    assert (one.value, one.low, one.high) == pytest.approx((wilson.value, wilson.low, wilson.high))


def test_mean_of_shares_counts_families_alike_and_narrows_with_their_number():
    found = statistics.mean_of_shares([(10, 10), (0, 40)])
    assert found.value == pytest.approx(0.5)
    all_right = statistics.mean_of_shares([(50, 50)] * 4)
    assert all_right.high == 1.0
    # One share alone misses 0.0714; four of them half as much.
    assert all_right.low == pytest.approx(1 - 0.0714 / 2, abs=5e-4)
    with pytest.raises(ValueError, match="at least one share"):
        statistics.mean_of_shares([])


def test_equal_values_have_no_spread():
    assert statistics.mean([2.0, 2.0, 2.0]) == Estimate(2.0, 2.0, 2.0)
    assert statistics.median([3.0, 3.0]) == Estimate(3.0, 3.0, 3.0)


def test_bootstrap_of_a_mean_agrees_with_the_normal_interval():
    values = [0.0, 1.0] * 100
    found = statistics.mean(values)
    half = 1.96 * 0.5 / math.sqrt(200)
    assert found.value == 0.5
    assert found.low == pytest.approx(0.5 - half, abs=0.015)
    assert found.high == pytest.approx(0.5 + half, abs=0.015)


def test_every_group_counts_alike():
    found = statistics.mean_of_means([[1.0], [3.0, 3.0, 3.0]])
    assert found == Estimate(2.0, 2.0, 2.0)


def test_ratio_of_sums_is_pooled_not_a_mean_of_ratios():
    found = statistics.ratio_of_sums([10, 2], [2, 2])
    assert found.value == 3.0  # (10 + 2) / (2 + 2); the mean of 5 and 1 is 3 by chance
    assert statistics.ratio_of_sums([10, 2], [2, 4]).value == 2.0
    assert 0.5 <= statistics.ratio_of_sums([10, 2], [2, 4]).low <= 2.0


def test_median_ratio_is_the_exponent_of_the_median_log_ratio():
    found = statistics.median_ratio([[2.0, 4.0, 8.0]])
    assert found.value == pytest.approx(4.0)
    assert found.low == pytest.approx(2.0)
    assert found.high == pytest.approx(8.0)


def test_ratios_average_geometrically():
    assert statistics.median_ratio([[2.0, 0.5]]).value == pytest.approx(1.0)
    assert statistics.median_ratio([[2.0], [8.0, 8.0, 8.0]]).value == pytest.approx(4.0)


def test_one_outlier_moves_the_mean_but_not_the_median():
    values = [1.0] * 20 + [1000.0]
    assert statistics.median(values).value == 1.0
    assert statistics.median(values).high == 1.0
    assert statistics.mean(values).value > 40


def test_same_numbers_same_interval():
    values = [1.0, 2.0, 5.0, 9.0]
    assert statistics.mean(values) == statistics.mean(values)


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf]])
def test_nothing_and_non_numbers_are_refused(values: list[float]):
    with pytest.raises(ValueError, match="estimate"):
        statistics.mean(values)
    with pytest.raises(ValueError, match="estimate"):
        statistics.median(values)


def test_ratios_refuse_zero_and_uneven_pairs():
    with pytest.raises(ValueError, match="above 0"):
        statistics.ratio_of_sums([1.0], [0.0])
    with pytest.raises(ValueError, match="above 0"):
        statistics.median_ratio([[0.0]])
    with pytest.raises(ValueError, match="as many"):
        statistics.ratio_of_sums([1.0, 2.0], [1.0])


def test_scaling_moves_all_three():
    assert Estimate(0.5, 0.25, 0.75).scaled(100) == Estimate(50.0, 25.0, 75.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=12))
def test_intervals_hold_their_value_and_stay_within_the_data(values: list[float]):
    slack = 1e-9
    for found in (statistics.mean(values), statistics.median(values)):
        assert found.low - slack <= found.high
        assert min(values) - slack <= found.low
        assert found.high <= max(values) + slack
        assert min(values) - slack <= found.value <= max(values) + slack


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.data())
def test_wilson_is_ordered(count: int, data: st.DataObject):
    right = data.draw(st.integers(0, count))
    found = statistics.wilson(right, count)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
