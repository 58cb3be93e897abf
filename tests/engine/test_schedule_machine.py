"""The schedule under any order of jobs: a state machine of what may come."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_schedule import alone, shared

from mars_runtime.engine.schedule import FullError, Job, Lane, Schedule, Turn


class Machine(RuleBasedStateMachine):
    """Jobs of every kind come, are read, work, rest, change pace, finish, fail and are cancelled
    in random order."""

    MAX_ACTIVE, MAX_WAITING = 3, 3

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[Lane] = Schedule(self.MAX_ACTIVE, self.MAX_WAITING)
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
        if len(self.schedule) == self.MAX_ACTIVE + self.MAX_WAITING:
            with pytest.raises(FullError):
                self.schedule.add(job)
            return
        self.schedule.add(job)
        self.jobs.append(job)

    @rule(seconds=st.floats(0, 5), passing=st.floats(0, 9), fails=st.booleans())
    def step(self, seconds: float, passing: float, fails: bool) -> None:
        self.now += passing
        turn = self.schedule.next_turn(self.now)
        if turn is None:
            assert all(self.is_slow(job) and self.ready_at(job) > self.now for job in self.active)
            wake = min(map(self.ready_at, self.active), default=math.inf)
            assert self.schedule.next_wake() == wake
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

    def check_kind(self, turn: Turn[Lane], taking: list[Job[Lane]]) -> None:
        if turn.kind == "alone":
            assert not taking[0].is_shared
            assert len(turn.lanes) == 1
        else:
            assert all(job.is_shared for job in taking)
            assert {lane.is_read for lane in turn.lanes} == {turn.kind == "step"}
        at_full_speed = [job for job in self.active if not self.is_slow(job)]
        lone = next((job for job in at_full_speed if not job.is_shared), None)
        if lone is not None:  # nobody who came later at full speed, and nobody beside it
            at_once = [job for job in taking if job in at_full_speed]
            assert all(self.jobs.index(job) <= self.jobs.index(lone) for job in at_once)

    def check_patience(self, turn: Turn[Lane], taking: list[Job[Lane]]) -> None:
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
        self.schedule.finish(job, lane)
        if job.is_finished:
            self.jobs.remove(job)
            assert self.schedule.place(job) == 0
            assert not self.schedule.is_held_up(job)

    @invariant()
    def nobody_is_lost_and_the_line_keeps_its_order(self) -> None:
        assert len(self.schedule) == len(self.jobs)
        assert self.schedule.num_active == len(self.active)
        waiting = self.jobs[self.MAX_ACTIVE :]
        assert [self.schedule.place(job) for job in waiting] == list(range(1, len(waiting) + 1))
        unfinished = {lane for job in self.jobs for lane in job.lanes if not lane.is_finished}
        assert set(self.schedule.lanes()) == unfinished

    @invariant()
    def somebody_can_always_go_on(self) -> None:
        held = [job for job in self.active if self.schedule.is_held_up(job)]
        assert not any(map(self.is_slow, held))
        assert not held or any(job not in held and not self.is_slow(job) for job in self.active)

    @invariant()
    def slow_motion_gives_way_to_those_who_wait_for_a_place(self) -> None:
        hurried = [job for job in self.jobs if self.schedule.is_hurried(job)]
        assert hurried == [job for job in self.active if job.pace and not self.is_slow(job)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
