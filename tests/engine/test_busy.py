"""The rule that follows the queue: on hand-written queues, and in a server whose worker is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from law_checkpoints import load, task_prompts
from starlette.testclient import TestClient

from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.busy import LEVELS, BusyRule, next_level
from mars_runtime.runs.events import Event, Step
from mars_runtime.runs.folds import accepted_tokens
from mars_runtime.serving.app import make_app
from mars_runtime.serving.metrics import Metrics
from mars_runtime.serving.models import EngineModel, SingleModel
from mars_runtime.settings import AR_LOOKUP, RECOMMENDED, DecodeSettings
from tests.engine.scripted import eventually

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
    shallow = BusyRule(low=0.5, depth=2)
    assert [shallow.apply(RECOMMENDED, level).block_size for level in (1, 4)] == [2, 1]


@pytest.mark.parametrize(
    "settings", [DecodeSettings("ar", tau=1.0, block_size=1), replace(RECOMMENDED, block_size=6)]
)
def test_ar_and_a_b_that_a_request_fixed_stay(settings: DecodeSettings) -> None:
    assert RULE.apply(settings, LEVELS) == settings


class HeldEngine:
    """Holds the worker after each step of the first run until ``go_on`` is released."""

    def __init__(self, engine: Engine) -> None:
        self.taken: dict[Run, list[Step]] = {}
        self.is_held = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        engine.observe(self._observe)

    def _observe(self, run: Run, event: Event) -> None:
        if not isinstance(event, Step):
            return
        self.taken.setdefault(run, []).append(event)
        if run is next(iter(self.taken)):
            self.is_held.release()
            assert self.go_on.acquire(timeout=60)

    def step(self) -> None:
        self.go_on.release()
        assert self.is_held.acquire(timeout=60)


@pytest.fixture
def engine() -> Iterator[Engine]:
    checkpoint = load("mars-tiny")
    with Engine(checkpoint, 1, 8, busy=BusyRule(0.5, checkpoint.block_size)) as made:
        yield made


def test_a_server_lowers_tau_while_requests_wait(engine: Engine) -> None:
    """The first request begins alone; four more wait during its next steps; the last ends alone."""
    held, metrics = HeldEngine(engine), Metrics()
    metrics.watch("mars-tiny", engine)
    model = EngineModel.of(load("mars-tiny"), engine)
    models = SingleModel("mars-tiny", lambda: model)
    assert models.wait() == ""
    body = {"model": "mars-tiny", "max_tokens": 6, "lossless": False, "tau": 0.9, "block_size": 4,
            "messages": [{"role": "user", "content": "Write 1 2 3 backwards"}]}  # fmt: skip
    statuses: list[int] = []
    app = make_app(models, expose=metrics.expose)
    with TestClient(app) as client:

        def ask() -> None:
            statuses.append(client.post("/v1/chat/completions", json=body).status_code)

        asking = [threading.Thread(target=ask) for _ in range(5)]
        asking[0].start()
        assert held.is_held.acquire(timeout=60)
        for thread in asking[1:]:
            thread.start()
        assert eventually(lambda: engine.num_waiting == 4)
        held.step()
        text = client.get("/metrics").text
        assert 'mars:busy_max_tau{model_name="mars-tiny"} 0.75' in text
        assert 'mars:busy_max_block_size{model_name="mars-tiny"} 3.0' in text
        held.go_on.release(100)
        for thread in asking:
            thread.join(60)
    assert statuses == [200] * 5
    taus = [[step.rows[0].settings.tau for step in steps] for steps in held.taken.values()]
    assert taus[0][:2] == [0.9, 0.75]
    assert [later[-1] for later in taus[1:]] == [0.75, 0.875, 0.875, 0.9]


def test_a_smaller_b_changes_no_lossless_text(engine: Engine) -> None:
    held = HeldEngine(engine)
    prompts = task_prompts("mars-tiny", 9)
    lossless = replace(RECOMMENDED, max_new_tokens=16)
    first = engine.submit(Request(prompts[0], lossless))
    assert held.is_held.acquire(timeout=60)
    runs = [first, *(engine.submit(Request(ids, lossless)) for ids in prompts[1:])]
    held.go_on.release(100)
    assert all(run.wait(60) for run in runs)
    first_size, *sizes = [step.rows[0].settings.block_size for step in held.taken[first]]
    assert (first_size, set(sizes)) == ("auto", {1})
    ar = DecodeSettings("ar", tau=1.0, block_size=1, max_new_tokens=16)
    for ids, run in zip(prompts, runs, strict=True):
        reference = engine.submit(Request(ids, ar))
        assert reference.wait(60)
        assert accepted_tokens(run.events_since(0)) == accepted_tokens(reference.events_since(0))
