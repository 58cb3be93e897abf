"""The engine whose device is lent for each run, over processes that are forked for the tests."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mars_runtime.engine.leased import Call, LeaseError, News
from mars_runtime.events import End
from tests.engine.forked_worker import ABORTED
from tests.engine.leased_setting import FOREVER_LONG, Setting, begun, setting
from tests.engine.scripted import FOREVER, eventually, last, request, steps


@pytest.fixture
def lent() -> Iterator[Setting]:
    with setting() as made:
        yield made


def test_a_run_is_decoded_in_another_process_to_its_end(lent: Setting) -> None:
    run = lent.engine.submit(request(5, 20))
    events = list(run)
    assert [step.rows[0].accepted for step in steps(run)] == [(5,)] * 20
    assert events[-1] == End("limit")
    assert run.clock == pytest.approx(sum(getattr(event, "seconds", 0.0) for event in events))
    assert lent.num_forwards.value == 20


@pytest.mark.timed
def test_a_moved_slider_is_seen_in_mid_run_within_three_tenths_of_a_second(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    for tau in (0.5, 0.25, 0.75):
        run.settings = replace(run.settings, tau=tau)
        moved = time.monotonic()
        assert eventually(lambda now=tau: steps(run)[-1].rows[0].settings.tau == now, 5)
        assert time.monotonic() - moved < 0.3
    assert not run.is_finished
    run.cancel()


def test_a_moved_slider_acts_on_the_next_forward(lent: Setting) -> None:
    """Told before the forward after the one in flight, and never taken back."""
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    for tau in (0.5, 0.25):
        before = lent.num_forwards.value
        run.settings = replace(run.settings, tau=tau)
        after = lent.num_forwards.value
        assert eventually(lambda now=tau: steps(run)[-1].rows[0].settings.tau == now)
        told = [step.rows[0].settings.tau for step in steps(run)]
        assert before <= told.index(tau) <= after + 1
        assert set(told[told.index(tau) :]) == {tau}
    run.cancel()


def test_stop_acts_within_one_forward_and_the_reader_need_not_wait_for_it() -> None:
    with setting(seconds=0.3) as lent:
        run = lent.engine.submit(FOREVER_LONG)
        assert eventually(lambda: lent.num_forwards.value > 1)
        at, began = lent.num_forwards.value, time.monotonic()
        run.cancel()
        assert run.wait(5)
        assert last(run) == End("cancelled")
        assert time.monotonic() - began < 0.25
        assert eventually(lambda: not lent.workers.busy)
        assert lent.num_forwards.value <= at + 1


def test_stop_of_one_lane_leaves_the_other_going(lent: Setting) -> None:
    one, other = lent.engine.race([request(1, FOREVER), request(2, 60)])
    assert eventually(lambda: begun(one))
    one.cancel()
    assert other.wait(60)
    assert last(one) == End("cancelled")
    assert last(other) == End("limit")


def test_slow_motion_begins_and_ends_in_mid_run(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG, pace=2000.0)
    assert eventually(lambda: lent.num_forwards.value == 1)
    time.sleep(0.2)
    assert lent.num_forwards.value == 1
    run.pace = 0.0
    assert eventually(lambda: begun(run))
    run.cancel()
    assert run.wait(5)


def test_a_run_in_slow_motion_stops_at_once(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG, pace=10_000.0)
    assert eventually(lambda: lent.num_forwards.value == 1)
    run.cancel()
    assert eventually(lambda: not lent.workers.busy, 10)
    assert lent.num_forwards.value == 1


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_process_that_is_killed_costs_its_run_alone(is_fresh: bool) -> None:
    with setting(is_fresh=is_fresh) as lent:
        runs = [lent.engine.submit(request(token, FOREVER)) for token in (1, 2)]
        assert eventually(lambda: all(map(begun, runs)))
        lent.workers.busy[0].kill()
        assert eventually(lambda: any(run.is_finished for run in runs))
        assert [last(run) for run in runs if run.is_finished] == [End("error", ABORTED)]
        for run in runs:
            run.cancel()
            assert run.wait(5)
        for _ in range(3):
            assert list(lent.engine.submit(request(4, 5)))[-1] == End("limit")
        assert lent.engine.is_alive


def test_a_process_that_is_killed_ends_each_of_its_lanes_once(lent: Setting) -> None:
    lanes = lent.engine.race([request(token, FOREVER) for token in (1, 2, 3)])
    assert eventually(lambda: all(map(begun, lanes)))
    (process,) = lent.workers.busy
    process.kill()
    for lane in lanes:
        assert lane.wait(10)
        ends = [event for event in lane.events_since(0) if isinstance(event, End)]
        assert ends == [End("error", ABORTED)]
    again = lent.engine.race([request(token, 5) for token in (1, 2, 3)])
    assert [list(lane)[-1] for lane in again] == [End("limit")] * 3


def test_a_refusal_is_a_sentence_and_the_next_run_works(lent: Setting) -> None:
    refusals = iter(["You have used up your quota: try again in 2:00:00."])

    def lease(call: Call) -> Generator[News, None, None]:
        for sentence in refusals:
            raise LeaseError(sentence)
        yield from lent.workers.lease(call)

    engine = lent.open(lease)
    refused = list(engine.submit(request(1)))
    assert refused == [End("error", "You have used up your quota: try again in 2:00:00.")]
    assert list(engine.submit(request(1)))[-1] == End("limit")
    engine.close()


def test_a_fault_of_a_forward_is_a_sentence_without_the_prompt(lent: Setting) -> None:
    end = list(lent.engine.submit(request(66, 9)))[-1]
    assert isinstance(end, End)
    assert end.reason == "error"
    assert "secret" not in end.message
    assert list(lent.engine.submit(request(1)))[-1] == End("limit")


def test_a_fault_nobody_foresaw_is_a_sentence_too(lent: Setting, caplog: Any) -> None:
    words = "secret words of the prompt"

    def lease(call: Call) -> Generator[News, None, None]:
        yield News()
        raise ZeroDivisionError(words)

    engine = lent.open(lease)
    end = list(engine.submit(request(1)))[-1]
    assert isinstance(end, End)
    assert "run it again" in end.message
    assert words not in caplog.text
    assert "ZeroDivisionError" in caplog.text
    engine.close()
