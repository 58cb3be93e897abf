"""Turns, rests and places as pure bookkeeping."""

from __future__ import annotations

import math

from mars_runtime.engine.schedule import Job, Lane, Schedule, Turn


def alone(pace: float = 0.0, deadline: float = math.inf, num_lanes: int = 1) -> Job[Lane]:
    return Job([Lane(deadline) for _ in range(num_lanes)], pace)


def shared(pace: float = 0.0, is_read: bool = True) -> Job[Lane]:
    job = Job([Lane()], pace, is_shared=True)
    job.lanes[0].is_read = is_read
    return job


def schedule_of(*jobs: Job[Lane], max_active: int = 9, max_waiting: int = 9) -> Schedule[Lane]:
    schedule: Schedule[Lane] = Schedule(max_active, max_waiting)
    for job in jobs:
        schedule.add(job)
    return schedule


def turns(schedule: Schedule[Lane], count: int, now: float = 0.0) -> list[tuple[str, int]]:
    """Kind and number of lanes of the next turns."""
    found = [schedule.next_turn(now) for _ in range(count)]
    return [(turn.kind, len(turn.lanes)) for turn in found if turn is not None]


def test_jobs_that_are_ready_share_a_forward_and_one_that_rests_sits_out() -> None:
    jobs = [shared(), shared(pace=2.0), shared()]
    schedule = schedule_of(*jobs)
    assert schedule.next_turn(0.0) == Turn("step", tuple(job.lanes[0] for job in jobs))
    for job in jobs:
        job.spend(job.lanes[0], 3.0, 3.0)
    assert schedule.next_turn(3.0) == Turn("step", (jobs[0].lanes[0], jobs[2].lanes[0]))
    assert schedule.next_turn(9.0) == Turn("step", tuple(job.lanes[0] for job in jobs))


def test_prompts_are_read_in_between_and_in_order() -> None:
    decoding, first, second = shared(), shared(is_read=False), shared(is_read=False)
    schedule = schedule_of(decoding, first, second)
    steps = Turn("step", decoding.lanes, is_waited_for=True)
    read = Turn("read", first.lanes, is_waited_for=True)
    assert [schedule.next_turn(0.0) for _ in range(5)] == [read, steps, read, steps, read]
    first.lanes[0].is_read = True
    both = Turn("step", (*decoding.lanes, *first.lanes), is_waited_for=True)
    assert schedule.next_turn(0.0) == both
    assert schedule.next_turn(0.0) == Turn("read", second.lanes, is_waited_for=True)
    for job in (decoding, first):
        schedule.finish(job, job.lanes[0])
    assert [schedule.next_turn(0.0) for _ in range(2)] == [Turn("read", second.lanes)] * 2


def test_jobs_in_slow_motion_and_shared_ones_take_turns() -> None:
    slow = [alone(pace=1.0), alone(pace=1.0)]
    schedule = schedule_of(slow[0], shared(), slow[1], shared())
    assert turns(schedule, 6) == [("alone", 1), ("step", 2), ("alone", 1)] * 2


def test_a_job_alone_at_full_speed_has_the_device_to_its_end() -> None:
    before, lone, after, slow = shared(), alone(), shared(), alone(pace=1.0)
    schedule = schedule_of(before, lone, after, slow)
    slow.spend(slow.lanes[0], 5.0, 0.0)
    assert schedule.place(lone) == 1
    assert [schedule.is_held_up(job) for job in (before, lone, after)] == [False, False, True]
    assert [schedule.next_turn(1.0) for _ in range(3)] == [Turn("step", before.lanes)] * 3
    schedule.finish(before, before.lanes[0])
    assert schedule.place(lone) == 0
    assert [schedule.next_turn(1.0) for _ in range(3)] == [Turn("alone", lone.lanes)] * 3
    assert schedule.is_held_up(after)
    assert schedule.next_wake() == -math.inf
    assert {schedule.next_turn(6.0) for _ in range(2)} == {  # slow motion goes on beside it
        Turn("alone", lone.lanes),
        Turn("alone", slow.lanes),
    }
    assert not schedule.is_held_up(slow)
    lone.pace = 2.0
    lone.spend(lone.lanes[0], 4.0, 8.0)
    assert schedule.next_turn(9.0) == Turn("step", after.lanes)
    lone.pace = 0.0
    assert Turn("step", after.lanes) not in [schedule.next_turn(9.0) for _ in range(4)]
    schedule.finish(lone, lone.lanes[0])
    assert Turn("step", after.lanes) in [schedule.next_turn(9.0) for _ in range(2)]
    assert not schedule.is_held_up(after)


def test_jobs_alone_and_shared_jobs_are_served_in_order_of_arrival() -> None:
    """A stream of either kind cannot keep the other waiting for ever."""
    jobs = [shared(), shared(), alone(), shared(), alone(), alone(), shared()]
    schedule = schedule_of(*jobs)
    order = []
    while (turn := schedule.next_turn(0.0)) is not None:
        order.append([jobs.index(job) for job in jobs if job.lanes[0] in turn.lanes])
        for index in order[-1]:
            schedule.finish(jobs[index], jobs[index].lanes[0])
    assert order == [[0, 1], [2], [3], [4], [5], [6]]


def test_a_job_alone_at_full_speed_does_not_wait_for_slow_motion() -> None:
    slow, lone = shared(pace=50.0), alone()
    schedule = schedule_of(slow, lone)
    slow.spend(slow.lanes[0], 1.0, 0.0)
    assert schedule.place(lone) == 0
    assert schedule.next_turn(1.0) == Turn("alone", lone.lanes)


def test_newcomers_do_not_overtake_whoever_waits_for_a_turn() -> None:
    slow, busy = alone(pace=1.0), alone(pace=1.0)
    schedule = schedule_of(busy, slow)
    assert turns(schedule, 4) == [("alone", 1)] * 4
    busy.spend(busy.lanes[0], 1.0, 0.0)  # slow is next
    for _ in range(3):
        newcomer = alone(pace=1.0)
        schedule.add(newcomer)
        schedule.finish(newcomer, newcomer.lanes[0])
    schedule.add(alone(pace=1.0))
    assert schedule.next_turn(0.0) == Turn("alone", slow.lanes)


def test_a_race_steps_the_lane_that_is_behind() -> None:
    job = alone(num_lanes=2)
    fast, slow = job.lanes
    schedule = schedule_of(job)
    for _ in range(100):
        turn = schedule.next_turn(0.0)
        assert turn is not None
        (lane,) = turn.lanes
        assert lane.clock == min(fast.clock, slow.clock)
        job.spend(lane, 1.0 if lane is fast else 3.0, 0.0)
        assert abs(fast.clock - slow.clock) <= 3.0
    schedule.finish(job, slow)
    assert schedule.next_turn(0.0) == Turn("alone", (fast,))


def test_a_resting_job_lets_others_work_and_follows_its_pace_at_once() -> None:
    slow, other = alone(pace=10.0), alone(pace=1.0)
    schedule = schedule_of(slow, other)
    assert schedule.next_turn(5.0) == Turn("alone", slow.lanes)
    slow.spend(slow.lanes[0], 2.0, 7.0)
    assert [schedule.next_turn(8.0) for _ in range(2)] == [Turn("alone", other.lanes)] * 2
    schedule.finish(other, other.lanes[0])
    assert schedule.next_turn(8.0) is None
    assert schedule.next_wake() == 27.0
    slow.pace = 0.5
    assert schedule.next_wake() == 8.0
    assert schedule.next_turn(8.0) == Turn("alone", slow.lanes)


def test_slow_motion_gives_way_while_others_wait_for_a_place_and_comes_back() -> None:
    slow, next_one, waiting = alone(pace=100.0), shared(pace=100.0), shared()
    schedule = schedule_of(slow, next_one, waiting, max_active=2)
    slow.spend(slow.lanes[0], 3.0, 0.0)
    assert schedule.next_wake() == -math.inf
    assert schedule.next_turn(0.0) == Turn("alone", slow.lanes)
    assert [schedule.is_hurried(job) for job in (slow, next_one, waiting)] == [True, True, False]
    schedule.finish(waiting, waiting.lanes[0])
    assert not schedule.is_hurried(slow)
    assert schedule.next_turn(1.0) == Turn("step", next_one.lanes)
    next_one.spend(next_one.lanes[0], 1.0, 1.0)
    assert schedule.next_turn(1.0) is None
    assert schedule.next_wake() == 101.0


def test_no_rest_after_a_prefill() -> None:
    slow = alone(pace=10.0)
    schedule = schedule_of(slow)
    slow.spend(slow.lanes[0], 2.0, 7.0, has_rest=False)
    assert slow.lanes[0].clock == 2.0
    assert schedule.next_turn(7.0) == Turn("alone", slow.lanes)


def test_deadlines_wake_too() -> None:
    waiting = alone(deadline=9.0)
    schedule = schedule_of(alone(pace=1.0, deadline=50.0), waiting, max_active=1)
    assert schedule.next_deadline() == 9.0
    schedule.finish(waiting, waiting.lanes[0])
    assert schedule.next_deadline() == 50.0
