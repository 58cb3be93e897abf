"""Runs that bring a decoder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mars_runtime import folds
from mars_runtime.engine import Engine
from mars_runtime.events import End, Event, Prefill, Step, Stop
from tests.engine.scripted import (
    FOREVER,
    Script,
    Settings,
    eventually,
    last,
    request,
    scripted_step,
    steps,
)


def solo_steps(now: Settings, stops: list[list[Stop]]) -> Iterator[Event]:
    """Steps of two rows that stop as told, after a Prefill."""
    yield Prefill(2)
    for start, pair in enumerate(stops):
        alone = [scripted_step(start, 7, now(), stop).rows[0] for stop in pair]
        yield Step(tuple(replace(step, row=row) for row, step in enumerate(alone)))


@pytest.mark.parametrize(
    ("final", "reason"),
    [(["eos", "eos"], "eos"), (["eos", "limit"], "limit"), (["eos", "block"], "error")],
)
def test_a_solo_run_has_any_rows_and_ends_when_its_decoder_does(
    final: list[Stop], reason: str
) -> None:
    with Engine(Script()) as engine:
        settings = request().settings
        stops: list[list[Stop]] = [["eos", "block"], ["eos", "block"], final]
        run = engine.solo(lambda model, vocabulary, now: solo_steps(now, stops), settings)
        events = list(run)
    assert [len(step.rows) for step in steps(run)] == [2, 2, 2]
    assert all(event.seconds > 0 for event in events if not isinstance(event, End))
    end = folds.end(events)
    assert end is not None
    assert end.reason == reason


def test_a_solo_run_is_steered_and_cancelled_like_any_other() -> None:
    with Engine(Script()) as engine:
        stops: list[list[Stop]] = [["block", "block"]] * FOREVER
        settings = request().settings
        run = engine.solo(lambda *parts: solo_steps(parts[2], stops), settings, pace=20.0)
        assert eventually(lambda: len(steps(run)) > 0)
        run.settings = replace(settings, tau=0.25)
        run.pace = 0.0
        assert eventually(lambda: steps(run)[-1].rows[1].settings.tau == 0.25)
        run.cancel()
        assert run.wait(120)
        assert last(run) == End("cancelled")
        late = engine.solo(lambda *parts: solo_steps(parts[2], stops), settings, deadline=0.01)
        assert late.wait(120)
        assert folds.end(late.events_since(0)) == End(
            "deadline", "The time limit of 0.01 s is over."
        )
