"""The rule that follows the queue: on hand-written queues, and in an engine."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.busy import LEVELS, BusyRule, next_level
from mars_runtime.settings import AR_LOOKUP, RECOMMENDED, DecodeSettings
from tests.engine.scripted import Script, steps

RULE = BusyRule(low=0.5, depth=8)
UNVERIFIED = DecodeSettings(tau=0.9, block_size=4)


def levels(queue: list[int], num_slots: int = 4) -> list[int]:
    level, found = 0, []
    for num_waiting in queue:
        level = next_level(level, num_waiting, num_slots)
        found.append(level)
    return found


@pytest.mark.parametrize(
    ("queue", "wanted"),
    [
        ([0, 1, 2, 3, 4, 8, 100], [0, 0, 1, 1, 2, 4, 4]),
        ([100, 8, 7, 6, 5, 4, 3, 2, 1, 0], [4, 4, 4, 3, 3, 2, 2, 1, 1, 0]),
        ([2, 1, 2, 1, 2], [1, 1, 1, 1, 1]),  # does not switch back and forth
        ([3] * 5, [1] * 5),
    ],
)
def test_the_level_follows_the_queue_with_hysteresis(queue: list[int], wanted: list[int]) -> None:
    assert levels(queue) == wanted


def test_the_queue_counts_by_the_number_of_slots_and_a_longer_one_never_lowers_the_level() -> None:
    assert levels([8], num_slots=16) == levels([2], num_slots=1) == [1]
    for level in range(LEVELS + 1):
        following = [next_level(level, num_waiting, 4) for num_waiting in range(12)]
        assert following == sorted(following)


def test_tau_is_limited_without_verification_and_only_b_with_it() -> None:
    taus = [RULE.apply(UNVERIFIED, level).tau for level in range(LEVELS + 1)]
    assert taus == [0.9, 0.875, 0.75, 0.625, 0.5]
    assert RULE.apply(replace(UNVERIFIED, tau=0.3), LEVELS).tau == 0.3
    lossless = [RULE.apply(RECOMMENDED, level) for level in range(LEVELS + 1)]
    assert [settings.block_size for settings in lossless] == ["auto", 4, 3, 2, 1]
    assert lossless[LEVELS] == AR_LOOKUP
    for kept in (DecodeSettings("ar", tau=1.0, block_size=1), replace(RECOMMENDED, block_size=6)):
        assert RULE.apply(kept, LEVELS) == kept  # AR, and a B that a request fixed
    shallow = BusyRule(low=0.5, depth=2)
    assert [shallow.apply(RECOMMENDED, level).block_size for level in (1, 4)] == [2, 1]


def test_tau_is_lowered_while_requests_wait() -> None:
    """One run at a time; four wait when the first one begins, and none when the last one does."""
    script = Script(start=threading.Event())
    limits: dict[Run, tuple[float, int]] = {}
    with Engine(script, 1, 8, busy=RULE) as engine:
        engine.observe(lambda run, event: limits.setdefault(run, engine.busy_limits) and None)
        settings = replace(UNVERIFIED, max_new_tokens=3)
        runs = [engine.submit(Request((token,), settings)) for token in range(1, 6)]
        script.start.set()  # type: ignore[union-attr]
        assert all(run.wait(120) for run in runs)
    taus = [{step.rows[0].settings.tau for step in steps(run)} for run in runs]
    assert taus == [{0.75}, {0.75}, {0.875}, {0.875}, {0.9}]
    assert [limits[run] for run in runs] == [(0.75, 3), (0.75, 3), (0.875, 4), (0.875, 4), (1.0, 8)]
