"""Runs alone on the device: with a decoder of their own, or asking what AR would have chosen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers import ScriptedModel, foresight_script
from test_company import IDS, ModelBackend
from torch import Tensor

from mars_runtime import folds
from mars_runtime.engine import Engine, Request, Run
from mars_runtime.events import End, Event, Prefill, RowStep, Step, Stop
from mars_runtime.folds import row_steps
from mars_runtime.settings import DecodeSettings
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


SECONDS = 0.05
SETTINGS = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=16)
SCRIPT = foresight_script(4, eos_share=0.0)


class SlowReading(ScriptedModel):
    """Takes its time whenever the head is put on a forward once more."""

    num_reads = 0

    def hidden(self, tokens: Tensor, cache: Any, branches: Any = None) -> Any:
        self.num_reads = 0
        return super().hidden(tokens, cache, branches)

    def logits(self, hidden: Any, head: Any) -> Tensor:
        self.num_reads += 1
        if self.num_reads > 1:
            time.sleep(SECONDS)
        return super().logits(hidden, head)


def steps_and_seconds(run: Run) -> list[tuple[RowStep, float]]:
    assert run.wait(120)
    return list(row_steps(run.events_since(0)))


def test_checks_come_with_the_step_and_stay_out_of_its_time() -> None:
    asking = Request([5, 6], SETTINGS, is_checked=True)
    quiet = replace(asking, is_checked=False)
    with Engine(ModelBackend(SlowReading(SCRIPT), IDS, 60)) as engine:
        alone = engine.race([asking, quiet])
        found, expected = map(steps_and_seconds, alone)
        shared = [engine.submit(request) for request in (asking, quiet)]
        found_too, expected_too = map(steps_and_seconds, shared)
    assert all(step.checks == () for step, _ in [*expected, *expected_too])
    for ours, theirs in ((found, expected), (found_too, expected_too)):
        bare = [replace(step, checks=(), num_fed=0) for step, _ in ours]  # what neighbours need
        assert bare == [replace(step, num_fed=0) for step, _ in theirs]
        assert [len(step.checks) for step, _ in ours] == [0, 3, 3, 3]
        assert min(seconds for step, seconds in ours if step.checks) < SECONDS
