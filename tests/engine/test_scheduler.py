"""The scheduler: turns, places and fairness among owners by hand, and under any order of jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mars_runtime.engine.scheduler import MAX_OWNERS, DeviceTurn, FullError, Job, Lane, Scheduler


def alone(pace: float = 0.0, deadline: float = math.inf, num_lanes: int = 1) -> Job[Lane]:
    return Job([Lane(deadline) for _ in range(num_lanes)], pace)


def shared(pace: float = 0.0, is_read: bool = True) -> Job[Lane]:
    job = Job([Lane()], pace, is_shared=True)
    job.lanes[0].is_read = is_read
    return job


def scheduler_of(*jobs: Job[Lane], max_active: int = 9, max_waiting: int = 9) -> Scheduler[Lane]:
    scheduler: Scheduler[Lane] = Scheduler(max_active, max_waiting)
    for job in jobs:
        scheduler.add(job)
    return scheduler


def test_a_race_steps_the_lane_that_is_behind() -> None:
    job = alone(num_lanes=2)
    fast, slow = job.lanes
    scheduler = scheduler_of(job)
    for _ in range(100):
        turn = scheduler.next_turn(0.0)
        (lane,) = turn.lanes
        assert lane.clock == min(fast.clock, slow.clock)
        job.spend(lane, 1.0 if lane is fast else 3.0, 0.0)
        assert abs(fast.clock - slow.clock) <= 3.0
    scheduler.finish(job, slow)
    assert scheduler.next_turn(0.0) == DeviceTurn("alone", (fast,))


def test_no_rest_after_a_prefill() -> None:
    slow = alone(pace=10.0)
    scheduler = scheduler_of(slow)
    slow.spend(slow.lanes[0], 2.0, 7.0, has_rest=False)
    assert slow.lanes[0].clock == 2.0
    assert scheduler.next_turn(7.0) == DeviceTurn("alone", slow.lanes)


def job(owner: str, is_shared: bool = False) -> Job[Lane]:
    made = Job([Lane()], is_shared=is_shared, owner=owner)
    made.lanes[0].is_read = True
    return made


def finish_next(scheduler: Scheduler[Lane], jobs: Sequence[Job[Lane]]) -> list[Job[Lane]]:
    turn = scheduler.next_turn(0.0)
    served = [job for job in jobs if job.lanes[0] in turn.lanes]
    for item in served:
        scheduler.finish(item, item.lanes[0])
    return served


def test_the_nth_job_of_one_owner_comes_no_sooner_than_the_nth_of_another() -> None:
    scheduler: Scheduler[Lane] = Scheduler(max_active=1, max_waiting=20)
    jobs = [job(owner) for owner in "aaaabbc"]
    for item in jobs:
        scheduler.add(item)
    assert [scheduler.num_ahead(entry) for entry in jobs] == [0, 3, 5, 6, 1, 4, 2]
    order = "".join(finish_next(scheduler, jobs)[0].owner for _ in jobs)
    assert order == "abcabaa"


def test_no_owner_takes_the_whole_line() -> None:
    scheduler: Scheduler[Lane] = Scheduler(max_active=1, max_waiting=4)
    for _ in range(4):
        scheduler.add(job("a"))
    with pytest.raises(FullError):
        scheduler.add(job("a"))
    scheduler.add(job("b"))
    with pytest.raises(FullError):
        scheduler.add(job("c"))


def test_owners_who_have_gone_are_forgotten() -> None:
    scheduler: Scheduler[Lane] = Scheduler(max_active=1, max_waiting=2)
    jobs = [job("stays")]
    scheduler.add(jobs[0])
    for number in range(MAX_OWNERS + 50):
        passing = job(str(number))
        scheduler.add(passing)
        scheduler.finish(passing, passing.lanes[0])
    stored = [value for value in vars(scheduler).values() if isinstance(value, Sized)]
    assert max(map(len, stored)) <= MAX_OWNERS


class Machine(RuleBasedStateMachine):
    """Jobs of every kind come, are read, work, rest, change pace, finish, fail and are cancelled
    in random order."""

    MAX_ACTIVE, MAX_WAITING = 3, 3

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: Scheduler[Lane] = Scheduler(self.MAX_ACTIVE, self.MAX_WAITING)
        self.jobs: list[Job[Lane]] = []  # in order of arrival
        self.patience: dict[Job[Lane], int] = {}
        self.now = 0.0

    @property
    def active(self) -> list[Job[Lane]]:
        return self.jobs[: self.MAX_ACTIVE]

    @property
    def has_line(self) -> bool:
        return len(self.jobs) > self.MAX_ACTIVE

    def is_slow(self, job: Job[Lane]) -> bool:
        return bool(job.pace) and not self.has_line

    def ready_at(self, job: Job[Lane]) -> float:
        return -math.inf if self.has_line else job.ready_at

    @rule(num_lanes=st.integers(0, 3), pace=st.sampled_from([0.0, 0.0, 1.0, 9.0]))
    def submit(self, num_lanes: int, pace: float) -> None:
        job = alone(pace, num_lanes=num_lanes) if num_lanes else shared(pace, is_read=False)
        if len(self.scheduler) == self.MAX_ACTIVE + self.MAX_WAITING:
            with pytest.raises(FullError):
                self.scheduler.add(job)
            return
        self.scheduler.add(job)
        self.jobs.append(job)

    @rule(seconds=st.floats(0, 5), passing=st.floats(0, 9), fails=st.booleans())
    def step(self, seconds: float, passing: float, fails: bool) -> None:
        self.now += passing
        turn = self.scheduler.next_turn(self.now)
        if turn is None:
            assert all(self.is_slow(job) and self.ready_at(job) > self.now for job in self.active)
            wake = min(map(self.ready_at, self.active), default=math.inf)
            assert self.scheduler.next_wake() == wake
            return
        taking = [job for job in self.active if set(job.lanes) & set(turn.lanes)]
        assert sum(len(set(job.lanes) & set(turn.lanes)) for job in taking) == len(turn.lanes) > 0
        assert all(self.ready_at(job) <= self.now for job in taking)
        assert not any(lane.is_finished for lane in turn.lanes)
        self.check_kind(turn, taking)
        self.check_patience(turn, taking)
        for job in taking:
            (lane,) = set(job.lanes) & set(turn.lanes)
            job.spend(lane, seconds, self.now, has_rest=turn.kind != "read")
            if turn.kind == "read":
                lane.is_read = seconds > 2
            if fails:
                self.finish(job, lane)

    def check_kind(self, turn: DeviceTurn[Lane], taking: list[Job[Lane]]) -> None:
        if turn.kind == "alone":
            assert not taking[0].is_shared
            assert len(turn.lanes) == 1
        else:
            assert all(job.is_shared for job in taking)
            assert {lane.is_read for lane in turn.lanes} == {turn.kind == "step"}
        at_full_speed = [job for job in self.active if not self.is_slow(job)]
        lone = next((job for job in at_full_speed if not job.is_shared), None)
        if lone is not None:  # no later run at full speed, and none next to it
            at_once = [job for job in taking if job in at_full_speed]
            assert all(self.jobs.index(job) <= self.jobs.index(lone) for job in at_once)

    def check_patience(self, turn: DeviceTurn[Lane], taking: list[Job[Lane]]) -> None:
        """In slow motion one waits for the others' turns and no longer; shared ones are one."""
        for job in self.active:
            is_served = job in taking or (job.is_shared and turn.kind != "alone")
            is_patient = not is_served and self.is_slow(job) and job.ready_at <= self.now
            self.patience[job] = self.patience.get(job, 0) + 1 if is_patient else 0
            assert self.patience[job] <= self.MAX_ACTIVE

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), pace=st.sampled_from([0.0, 2.0, 100.0]))
    def change_pace(self, data: st.DataObject, pace: float) -> None:
        data.draw(st.sampled_from(self.jobs)).pace = pace

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        self.finish(job, data.draw(st.sampled_from([a for a in job.lanes if not a.is_finished])))

    def finish(self, job: Job[Lane], lane: Lane) -> None:
        self.scheduler.finish(job, lane)
        if job.is_finished:
            self.jobs.remove(job)
            assert self.scheduler.num_ahead(job) == 0
            assert not self.scheduler.is_held_up(job)

    @invariant()
    def no_job_is_lost_and_the_queue_keeps_its_order(self) -> None:
        assert len(self.scheduler) == len(self.jobs)
        assert self.scheduler.num_active == len(self.active)
        waiting = self.jobs[self.MAX_ACTIVE :]
        assert [self.scheduler.num_ahead(job) for job in waiting] == list(
            range(1, len(waiting) + 1)
        )
        unfinished = {lane for job in self.jobs for lane in job.lanes if not lane.is_finished}
        assert set(self.scheduler.lanes()) == unfinished

    @invariant()
    def somebody_can_always_go_on(self) -> None:
        held = [job for job in self.active if self.scheduler.is_held_up(job)]
        assert not any(map(self.is_slow, held))
        assert not held or any(job not in held and not self.is_slow(job) for job in self.active)

    @invariant()
    def slow_motion_gives_way_to_those_who_wait_for_a_place(self) -> None:
        hurried = [job for job in self.jobs if self.scheduler.is_hurried(job)]
        assert hurried == [job for job in self.active if job.pace and not self.is_slow(job)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
