"""Turns, rests and places as pure bookkeeping."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mars_runtime.engine.schedule import FullError, Job, Lane, Schedule


def single(pace: float = 0.0, deadline: float = math.inf) -> Job[Lane]:
    return Job([Lane(deadline)], pace)


def test_jobs_take_turns() -> None:
    schedule: Schedule[Lane] = Schedule(3, 0)
    jobs = [single() for _ in range(3)]
    for job in jobs:
        schedule.add(job)
    order = []
    for now in range(6):
        turn = schedule.next_turn(now)
        assert turn is not None
        order.append(jobs.index(turn[0]))
    assert order == [0, 1, 2, 0, 1, 2]


def test_a_race_steps_the_lane_that_is_behind() -> None:
    fast, slow = Lane(), Lane()
    schedule: Schedule[Lane] = Schedule(1, 0)
    job = Job([fast, slow])
    schedule.add(job)
    for _ in range(100):
        turn = schedule.next_turn(0.0)
        assert turn is not None
        lane = turn[1]
        assert lane.clock == min(fast.clock, slow.clock)
        job.spend(lane, 1.0 if lane is fast else 3.0, 0.0)
        assert abs(fast.clock - slow.clock) <= 3.0
    schedule.finish(job, slow)
    assert schedule.next_turn(0.0) == (job, fast)


def test_a_resting_job_lets_others_work_and_follows_its_pace_at_once() -> None:
    schedule: Schedule[Lane] = Schedule(2, 0)
    slow, other = single(pace=10.0), single()
    schedule.add(slow)
    schedule.add(other)
    assert schedule.next_turn(5.0) == (slow, slow.lanes[0])
    slow.spend(slow.lanes[0], 2.0, 7.0)
    assert [schedule.next_turn(8.0) for _ in range(2)] == [(other, other.lanes[0])] * 2
    schedule.finish(other, other.lanes[0])
    assert schedule.next_turn(8.0) is None
    assert schedule.next_wake() == 27.0
    slow.pace = 0.5
    assert schedule.next_wake() == 8.0
    assert schedule.next_turn(8.0) == (slow, slow.lanes[0])


def test_no_rest_after_a_prefill() -> None:
    schedule: Schedule[Lane] = Schedule(1, 0)
    slow = single(pace=10.0)
    schedule.add(slow)
    slow.spend(slow.lanes[0], 2.0, 7.0, has_rest=False)
    assert slow.lanes[0].clock == 2.0
    assert schedule.next_turn(7.0) == (slow, slow.lanes[0])


def test_deadlines_wake_too() -> None:
    schedule: Schedule[Lane] = Schedule(1, 1)
    schedule.add(single(pace=1.0, deadline=50.0))
    waiting = single(deadline=9.0)
    schedule.add(waiting)
    assert schedule.next_deadline() == 9.0
    schedule.finish(waiting, waiting.lanes[0])
    assert schedule.next_deadline() == 50.0


class Machine(RuleBasedStateMachine):
    """Jobs come, work, rest, finish and are cancelled in random order."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[Lane] = Schedule(2, 3)
        self.jobs: list[Job[Lane]] = []
        self.turns: dict[Job[Lane], int] = {}
        self.now = 0.0

    @rule(num_lanes=st.integers(1, 3), pace=st.sampled_from([0.0, 1.0, 9.0]))
    def add(self, num_lanes: int, pace: float) -> None:
        job = Job([Lane() for _ in range(num_lanes)], pace)
        if len(self.schedule) == 5:
            with pytest.raises(FullError):
                self.schedule.add(job)
            return
        self.schedule.add(job)
        self.jobs.append(job)

    @rule(seconds=st.floats(0, 5), passing=st.floats(0, 9))
    def step(self, seconds: float, passing: float) -> None:
        self.now += passing
        turn = self.schedule.next_turn(self.now)
        if turn is None:
            ready = [job.ready_at for job in self.jobs[:2]]
            assert all(at > self.now for at in ready)
            assert self.schedule.next_wake() == min(ready, default=math.inf)
            return
        job, lane = turn
        assert job.ready_at <= self.now
        assert not lane.is_finished
        job.spend(lane, seconds, self.now)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        lane = data.draw(st.sampled_from([a for a in job.lanes if not a.is_finished]))
        self.schedule.finish(job, lane)
        if job.is_finished:
            self.jobs.remove(job)
            assert self.schedule.place(job) == 0

    @invariant()
    def nobody_is_lost_and_the_line_keeps_its_order(self) -> None:
        assert len(self.schedule) == len(self.jobs)
        assert self.schedule.num_active == min(2, len(self.jobs))
        assert [self.schedule.place(job) for job in self.jobs] == [0, 0, 1, 2, 3][: len(self.jobs)]
        unfinished = {lane for job in self.jobs for lane in job.lanes if not lane.is_finished}
        assert set(self.schedule.lanes()) == unfinished


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
