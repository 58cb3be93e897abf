"""Runs that ask what AR would have chosen: told outside their clock; others are not concerned."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from helpers import ScriptedModel, foresight_script
from test_company import IDS, ModelBackend
from torch import Tensor

from mars_runtime.engine import Engine, Request, Run
from mars_runtime.events import RowStep
from mars_runtime.folds import row_steps
from mars_runtime.settings import DecodeSettings

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
