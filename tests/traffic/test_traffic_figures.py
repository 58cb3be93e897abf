"""Traffic on numbers written by hand: arrivals, records, figures."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.events import End, Event, Prefill, RowStep, Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.statistics import spread
from mars_runtime.traffic.figures import (
    RequestRecord,
    agreement,
    figures_of,
    num_common,
    point_of,
    steady_rate,
    texts_of,
)
from mars_runtime.traffic.workload import (
    ArrivalsError,
    arrivals_of,
    bursts,
    poisson,
    rate_of,
    read_recorded,
)


@given(st.floats(0.1, 50), st.floats(0.1, 20), st.integers(0, 1000))
def test_arrivals_are_in_order_within_their_time_and_the_same_for_a_seed(
    rate: float, seconds: float, seed: int
) -> None:
    for kind in (poisson, bursts):
        actual = kind(rate, seconds, seed)
        assert list(actual) == sorted(actual)
        assert all(0 <= moment < seconds for moment in actual)
        assert actual == kind(rate, seconds, seed)


def test_the_rate_is_kept_gaps_of_poisson_are_exponential_and_bursts_come_together() -> None:
    spreads = []
    for kind in (poisson, bursts):
        counts = [len(kind(8.0, 50.0, seed)) for seed in range(60)]
        assert statistics.mean(counts) == pytest.approx(400, rel=0.06)
        gaps = [b - a for a, b in pairwise(kind(10.0, 2000.0, 1))]
        spreads.append(statistics.pstdev(gaps))
    assert spreads[0] == pytest.approx(0.1, rel=0.05)
    assert spreads[1] > 1.5 * spreads[0]


def test_what_was_recorded_is_read_in_order() -> None:
    assert read_recorded("0.5, 0,2") == (0.0, 0.5, 2.0)
    assert read_recorded("[1, 0.25]") == (0.25, 1.0)
    assert rate_of((0.0, 0.5, 2.0)) == 1.5
    assert rate_of(()) == rate_of((0.0,)) == 0.0


@pytest.mark.parametrize(
    "bad", ["", "soon", "[", "-1", "nan", "[1e999]", "[true]", "[[1]]", "[" * 10_000, "{}"]
)
def test_what_is_no_list_of_seconds_is_one_sentence(bad: str) -> None:
    with pytest.raises(ArrivalsError, match="Enter the arrival times in seconds"):
        read_recorded(bad)
    for value in ([0.0] * 10_001, None, [math.inf], [None], 3):
        with pytest.raises(ArrivalsError):
            arrivals_of(value)


def step(*tokens: int) -> Step:
    return Step((RowStep(0, 0, 0, 1, 1, (), tokens, 0, DecodeSettings(), "block"),), 0.01)


def told(record: RequestRecord, *values: tuple[float, Event]) -> RequestRecord:
    for at, event in values:
        record = record.after(event, at)
    return record


def whole(number: int, arrived: float, first: float, ended: float, *tokens: int) -> RequestRecord:
    record = RequestRecord(number, arrived, 8).admitted_at(arrived)
    events = [(first, step(tokens[0])), (ended, step(*tokens[1:])), (ended, End("limit"))]
    return told(record, *events)


def test_a_record_follows_its_run() -> None:
    record = RequestRecord(3, arrived=1.0, max_new_tokens=4, budget=2.0)
    assert (record.state, record.ttft, record.latency, record.is_in_time) == (
        "waiting",
        *[None] * 3,
    )
    record = record.admitted_at(1.5)
    assert record.state == "served"
    record = told(record, (1.6, Prefill(9)), (1.75, step(7)), (2.25, step(8, 9)))
    assert (record.ttft, record.num_tokens, record.num_forwards) == (0.75, 3, 2)
    assert record.tpot is None  # not whole yet
    record = told(record, (2.5, End("eos")))
    assert (record.state, record.latency, record.tpot) == ("done", 1.5, 0.375)
    assert record.is_in_time is True
    assert record.tokens == (7, 8, 9)


@pytest.mark.parametrize(
    ("reason", "state"), [("error", "failed"), ("cancelled", "cut"), ("deadline", "cut")]
)
def test_what_did_not_come_to_its_end_has_no_latency_and_broke_its_budget(reason, state) -> None:
    record = told(RequestRecord(0, 0.0, 4, 9.0), (1.0, step(1)), (2.0, End(reason)))
    assert (record.state, record.latency, record.tpot) == (state, None, None)
    assert record.is_in_time is False


def test_figures_of_three_requests() -> None:
    served = [
        whole(0, 0.0, 0.5, 1.0, 1, 2, 3),
        whole(1, 1.0, 2.0, 3.0, 1, 2, 3, 4, 5),
        RequestRecord(2, 2.0).over("refused", 2.0),
        RequestRecord(3, 3.5),
    ]
    figures = figures_of(served, now=4.0)
    assert (figures.num_arrived, figures.num_done, figures.num_refused) == (4, 2, 1)
    assert (figures.queue, figures.rows) == (1, 0)
    assert figures.tokens_per_second == 8 / 4
    assert figures.requests_per_second == 2 / 4
    assert figures.tpf == 8 / 4
    assert figures.ttft is not None
    assert (figures.ttft.p50, figures.ttft.p99) == (0.75, pytest.approx(0.995))
    assert figures.tpot is not None
    assert figures.tpot.p50 == 0.25
    assert figures.in_time is None
    assert figures_of([], 4.0).latency is spread([None, None]) is None
    found_spread = spread([None, 1.0, 3.0])
    assert found_spread is not None
    assert found_spread.p50 == 2.0
    over = figures_of(served[:2], now=90.0)  # time passes, the load is over
    assert over.tokens_per_second == 8 / 3


def test_the_share_of_budgets_that_were_kept() -> None:
    in_time = told(RequestRecord(0, 0.0, 4, 1.0), (0.5, step(1)), (0.9, End("eos")))
    broken = told(RequestRecord(1, 0.0, 4, 1.0), (0.5, step(1)), (1.2, End("eos")))
    assert (
        figures_of([in_time, broken, broken, RequestRecord(2, 0.0, 4, 1.0)], 2.0).in_time == 1 / 3
    )


def test_agreement_is_the_share_of_tokens_in_the_same_order() -> None:
    assert agreement({0: (1, 2, 3), 1: (4,)}, {0: (1, 2, 3), 2: (9,)}) == 1.0
    assert agreement({0: (1, 2, 3, 4)}, {0: (1, 9, 3)}) == 0.5
    assert agreement({0: (1,)}, {1: (1,)}) is None
    assert texts_of([whole(5, 0, 1, 2, 1, 2), RequestRecord(6, 0)]) == {5: (1, 2)}


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_the_common_part_is_as_long_as_that_of_the_slow_twin(a: list[int], b: list[int]) -> None:
    def slow(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        if a[i] == b[j]:
            return 1 + slow(i + 1, j + 1)
        return max(slow(i + 1, j), slow(i, j + 1))

    a, b = a[:7], b[:7]
    assert num_common(a, b) == slow(0, 0)


def done(
    number: int, arrived: float, admitted: float, ended: float, forwards: int = 2
) -> RequestRecord:
    record = RequestRecord(number, arrived).admitted_at(admitted).after(End("eos"), ended)
    return replace(record, num_forwards=forwards)


def test_the_rate_is_counted_from_the_first_answer_on() -> None:
    ends = [done(n, 0.0, n / 2, 1.0 + n / 2) for n in range(5)]  # two per second
    assert steady_rate(ends, 3.0) == 2.0
    assert steady_rate(ends, 2.0) == 2.0
    assert steady_rate(ends[:1], 3.0) == 0.0
    assert steady_rate([], 3.0) == 0.0
    point = point_of(ends, 9.0, 2.0)
    assert (point.offered, point.answered) == (9.0, 2.0)
