"""Histograms of forced acceptance: what is a histogram, and what its bounds say."""

from __future__ import annotations

import math
from bisect import bisect_right

import pytest

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.forced import ForcedAcceptance


@pytest.mark.parametrize("text", ["", "a,b", "0.5,0.4", "-0.5,1.5", "nan", ",".join(["0.05"] * 20)])
def test_what_is_no_histogram(text: str) -> None:
    with pytest.raises(DecodeError, match="add up to 1"):
        ForcedAcceptance.parse(text)


def test_no_recorded_forwards_are_no_histogram() -> None:
    with pytest.raises(DecodeError, match="add up to 1"):
        ForcedAcceptance.recorded({})


def test_bounds_split_the_unit_interval_by_the_shares() -> None:
    forced = ForcedAcceptance.recorded({1: 2, 3: 1, 4: 1})
    assert forced.shares == (0.5, 0.0, 0.25, 0.25)
    assert forced.mean == 0.5 + 0.75 + 1.0
    assert len(forced.bounds) == 15
    assert forced.bounds[:4] == (0.5, 0.5, 0.75, math.inf)
    takes = [1 + bisect_right(forced.bounds, uniform) for uniform in (0.0, 0.49, 0.5, 0.74, 0.99)]
    assert takes == [1, 1, 3, 3, 4]
