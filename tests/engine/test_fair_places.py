"""Places are dealt out fairly among owners: what one asks for, however much, holds up another by no
more than what of it has begun."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.engine import Engine, EngineBusy
from mars_runtime.engine.schedule import MAX_OWNERS, FullError, Job, Lane, Schedule
from tests.engine.scripted import Script, request

NUM_TOKENS = 3


def job(owner: str, is_shared: bool = False) -> Job[Lane]:
    made = Job([Lane()], is_shared=is_shared, owner=owner)
    made.lanes[0].is_read = True
    return made


def finish_next(schedule: Schedule[Lane], jobs: Sequence[Job[Lane]]) -> list[Job[Lane]]:
    """Those that have the next turn, at the end of it over."""
    turn = schedule.next_turn(0.0)
    assert turn is not None
    served = [each for each in jobs if each.lanes[0] in turn.lanes]
    for each in served:
        schedule.finish(each, each.lanes[0])
    return served


def test_the_nth_job_of_one_owner_comes_no_sooner_than_the_nth_of_another() -> None:
    schedule: Schedule[Lane] = Schedule(max_active=1, max_waiting=20)
    jobs = [job(owner) for owner in "aaaabbc"]
    for each in jobs:
        schedule.add(each)
    assert [schedule.place(each) for each in jobs] == [0, 3, 5, 6, 1, 4, 2]
    order = "".join(finish_next(schedule, jobs)[0].owner for _ in jobs)
    assert order == "abcabaa"


def test_who_asks_again_and_again_does_not_starve_a_line() -> None:
    schedule: Schedule[Lane] = Schedule(max_active=1, max_waiting=20)
    jobs = [job("a") for _ in range(4)]
    for each in jobs:
        schedule.add(each)
    order = ""
    for _ in range(8):  # b always has just one
        if not any(each.owner == "b" and not each.is_finished for each in jobs):
            jobs.append(job("b"))
            schedule.add(jobs[-1])
        order += finish_next(schedule, jobs)[0].owner
    assert order == "abababab"


def test_no_owner_takes_the_whole_line() -> None:
    schedule: Schedule[Lane] = Schedule(max_active=1, max_waiting=4)
    for _ in range(4):
        schedule.add(job("a"))
    with pytest.raises(FullError):
        schedule.add(job("a"))
    schedule.add(job("b"))
    with pytest.raises(FullError):
        schedule.add(job("c"))


def test_those_without_an_owner_share_the_whole_line_in_order_of_arrival() -> None:
    schedule: Schedule[Lane] = Schedule(max_active=1, max_waiting=4)
    jobs = [job("") for _ in range(5)]
    for each in jobs:
        schedule.add(each)
    assert [finish_next(schedule, jobs) for _ in jobs] == [[each] for each in jobs]


def test_owners_who_have_gone_are_forgotten() -> None:
    schedule: Schedule[Lane] = Schedule(max_active=1, max_waiting=2)
    jobs = [job("stays")]
    schedule.add(jobs[0])
    for number in range(MAX_OWNERS + 50):
        passing = job(str(number))
        schedule.add(passing)
        schedule.finish(passing, passing.lanes[0])
    assert len(schedule._latest) == MAX_OWNERS


@given(
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30),
    num_served=st.integers(0, 30),
    max_active=st.integers(1, 4),
)
def test_a_newcomer_waits_for_no_more_jobs_of_anybody_than_there_are_places(
    asked: list[tuple[str, bool]], num_served: int, max_active: int
) -> None:
    schedule: Schedule[Lane] = Schedule(max_active, max_waiting=100)
    jobs = [job(*each) for each in asked]
    for each in jobs:
        schedule.add(each)
    for _ in range(min(num_served, len(jobs) // 2)):
        if any(not each.is_finished for each in jobs):
            finish_next(schedule, jobs)
    newcomer = job("newcomer")
    schedule.add(newcomer)
    active = {each.owner for each in jobs if not each.is_finished}
    before: list[Job[Lane]] = []
    while not newcomer.is_finished:
        before += finish_next(schedule, [*jobs, newcomer])
    most = {owner: sum(each.owner == owner for each in before) for owner in active}
    assert all(count <= max_active for count in most.values())


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "shared"])
def test_a_second_visitor_waits_for_one_run_whatever_the_first_asks(is_alone: bool) -> None:
    script = Script(start=threading.Event())
    with Engine(script, max_runs=1, max_waiting=5) as engine:

        def ask(token: int, owner: str) -> None:
            asked = replace(request(token, NUM_TOKENS), owner=owner)
            runs.append(engine.submit(asked, is_alone=is_alone))

        runs: list[object] = []
        for token in range(1, 6):
            ask(token, "first")
        with pytest.raises(EngineBusy):
            ask(6, "first")
        ask(9, "second")
        script.start.set()  # type: ignore[union-attr]
        for run in runs:
            list(run)  # type: ignore[call-overload]
    order = [forward[0] for forward in script.forwards][::NUM_TOKENS]
    assert order == [1, 9, 2, 3, 4, 5]
