"""The engine with scripted decoders: turns, clocks, rests, steering and ends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from mars_runtime.engine import Engine, EngineBusy
from mars_runtime.engine.backend import PREFILL_ALONE, PREFILL_SHARED
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Prefill, Step
from mars_runtime.settings import SettingsError
from tests.engine.scripted import (
    FOREVER,
    Clock,
    Script,
    eventually,
    last,
    prefilled,
    request,
    steps,
)


def test_a_run_from_prefill_to_end() -> None:
    script = Script(seconds={1: 0.002})
    with Engine(script) as engine:
        run = engine.submit(request(1, 5))
        events = list(run)
        assert run.wait(120)
    assert isinstance(events[0], Prefill)
    assert [type(event) for event in events[1:-1]] == [Step] * 5
    assert events[-1] == End("limit") == folds.end(events)
    assert tuple(events) == run.events_since(0) == tuple(run)
    assert run.events_since(6) == (End("limit"),)
    assert run.events_since(99) == ()
    run.add(Prefill(1))  # as a worker that hangs may
    assert run.events_since(0) == tuple(events)
    assert all(step.seconds >= 0.002 for step in steps(run))
    assert run.clock == pytest.approx(sum(e.seconds for e in events if not isinstance(e, End)))
    assert run.is_finished
    assert run.num_ahead == 0
    assert len(script.threads) == 1


def test_plain_runs_share_every_forward_and_races_none() -> None:
    start = threading.Event()
    script = Script(seconds={1: 0.001, 2: 0.002}, start=start)
    with Engine(script, max_runs=4) as engine:
        runs = [engine.submit(request(token, 50)) for token in (1, 2)]
        runs += engine.race([request(3, 40)])  # no run to race against
        lanes = engine.race([request(4, 20), request(5, 20)])
        assert [lane.num_ahead for lane in lanes] == [3, 3]
        assert not any(run.is_held_up for run in (*runs, *lanes))
        start.set()
        assert all(run.wait(120) for run in (*runs, *lanes))
    joining = [(1,), (1, 2)]  # one prompt is read between two forwards
    assert script.forwards[:2] == joining
    assert script.forwards.count((1, 2, 3)) == 40
    assert sorted(script.forwards[-40:]) == [(4,)] * 20 + [(5,)] * 20  # those before come first
    assert runs[2].num_sharing == 2
    assert [lane.num_sharing for lane in lanes] == [0, 0]
    assert {step.rows[0].row for step in steps(runs[1])} == {0}
    seconds = [[step.seconds for step in steps(run)] for run in runs[:2]]
    assert seconds[0][1:] == seconds[1][:-1]  # a shared forward counts whole for each of its runs
    assert min(seconds[1]) >= 0.002


def test_a_long_prompt_is_read_in_parts_between_the_others_forwards() -> None:
    script = Script(seconds={1: 0.001}, num_parts=1)
    with Engine(script) as engine:
        first = engine.submit(request(1, FOREVER))
        assert eventually(lambda: len(steps(first)) > 0)
        script.num_parts = 20
        before = len(steps(first))
        second = engine.submit(request(2, 3))
        assert second.wait(120)
        assert len(steps(first)) >= before + 20
    assert script.parts == [PREFILL_ALONE] + [PREFILL_SHARED] * 20
    (prefill,) = (event for event in second.events_since(0) if isinstance(event, Prefill))
    assert prefill.seconds == pytest.approx(
        second.clock - folds.decode_seconds(second.events_since(0))
    )


def test_a_race_at_full_speed_has_exclusive_use_and_others_see_it() -> None:
    script = Script(seconds={1: 0.002})
    with Engine(script) as engine:
        lanes = engine.race([request(1, FOREVER), request(2, FOREVER)])
        assert eventually(lambda: len(steps(lanes[0])) > 0)
        runs = [engine.submit(request(3, 3)), *engine.race([request(4, 3), request(5, 3)])]
        assert [run.is_held_up for run in runs] == [True] * 3
        seen = len(steps(lanes[0]))
        assert eventually(lambda: len(steps(lanes[0])) > seen + 5)
        assert not any(prefilled(run) for run in runs)
        lanes[0].pace = 50.0  # in slow motion it makes room
        assert all(run.wait(120) for run in runs)
        assert not any(run.is_held_up for run in runs)
        assert not lanes[0].is_finished


def test_rests_are_outside_every_clock() -> None:
    with Engine(Script(seconds={1: 0.01})) as engine:
        start = time.monotonic()
        run = engine.submit(request(1, 5), pace=9.0)
        assert run.wait(120)
        passed = time.monotonic() - start
    assert passed >= 0.01 * 4 * 9
    assert run.clock < passed / 3
    assert run.pace == 9.0


def test_settings_act_on_the_very_next_forward_and_others_work_during_a_rest() -> None:
    """In slow motion there is time to move a slider between two given forwards."""
    with Engine(Script(seconds={1: 0.01})) as engine:
        run = engine.submit(request(1, 4), pace=10_000.0)
        assert engine.submit(request(2, 5)).wait(120)
        assert len(steps(run)) == 1
        run.settings = replace(run.settings, tau=0.25)
        run.pace = 0.0
        assert run.wait(120)
    assert [step.rows[0].settings.tau for step in steps(run)] == [0.95, 0.25, 0.25, 0.25]


def test_unusable_changes_are_refused_and_change_nothing() -> None:
    with Engine(Script()) as engine:
        run = engine.submit(request(1, 5), pace=1.0)
        before = run.settings
        for settings in (None, {"tau": 1}, replace(before, max_new_tokens=6)):
            with pytest.raises(SettingsError, match=r"\.$"):
                run.settings = settings  # type: ignore[assignment]
        for pace in (float("nan"), -1, float("inf"), "2", True, 1e9):
            with pytest.raises(SettingsError, match=r"\.$"):
                run.pace = pace  # type: ignore[assignment]
            with pytest.raises(SettingsError, match=r"\.$"):
                engine.submit(request(), pace=pace)  # type: ignore[arg-type]
        assert (run.settings, run.pace) == (before, 1.0)


@pytest.mark.parametrize("pace", [0.0, 10_000.0])
def test_cancel_ends_within_one_forward(pace: float) -> None:
    script = Script(seconds={1: 0.005})
    with Engine(script) as engine:
        run = engine.submit(request(1, FOREVER), pace=pace)
        assert eventually(lambda: len(steps(run)) >= 1)
        run.cancel()
        at = len(steps(run))
        run.cancel()
        assert run.wait(120)
        assert last(run) == End("cancelled")
        assert len(steps(run)) <= at + 1
        assert script.num_open == 0


def test_cancel_while_waiting_and_place_in_the_line() -> None:
    with Engine(Script(seconds={1: 0.002}), max_runs=1, max_waiting=2) as engine:
        served, first, second = (engine.submit(request(1, FOREVER)) for _ in range(3))
        assert [run.num_ahead for run in (served, first, second)] == [0, 1, 2]
        with pytest.raises(EngineBusy, match=r"again in a moment\.$"):
            engine.submit(request())
        first.cancel()
        assert first.wait(120)
        assert first.events_since(0) == (End("cancelled"),)
        assert [run.num_ahead for run in (served, first, second)] == [0, 0, 1]
        served.cancel()
        assert eventually(lambda: len(steps(second)) > 0)
        assert second.num_ahead == 0
        engine.submit(request(1, 1))


def test_deadline_counts_work_rest_and_waiting(clock: Clock) -> None:
    with Engine(Script(seconds={1: 0.002}), max_runs=2) as engine:
        paces = (0.0, 10_000.0, 0.0)
        runs = [engine.submit(request(1, FOREVER, deadline=60.0), pace) for pace in paces]
        assert eventually(lambda: all(map(prefilled, runs[:2])))
        clock.ahead = 61.0
        for run in runs:
            assert run.wait(120)
            end = last(run)
            assert (end.reason, end.message[-1]) == ("deadline", ".")
    assert len(runs[2].events_since(0)) == 1
