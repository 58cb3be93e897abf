"""Law 2 of the engine: whatever company a run has, it says what it says alone.

64 requests of different lengths and settings arrive, are changed, slowed down and cancelled at
random forwards; whatever one leaves in memory is turned into NaN. Each is held against the decoder
alone, told the same settings at the same steps. On a scripted model the two are equal. On real
weights in fp32 a matrix product of several rows may round the last bit otherwise than one of a
single row, so a choice that hangs on such a bit may fall the other way: one run in 64 may differ,
and only from a step on in which the two readings were as good as tied.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import Ids, ScriptedModel, foresight_script

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.backend import Backend, CheckpointBackend
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY
from mars_runtime.runs.events import Event, RowStep
from mars_runtime.runs.folds import row_steps
from mars_runtime.settings import MAX_FED, METRICS, DecodeSettings

NUM_REQUESTS, NUM_ROWS = 64, 8
TIED = 1e-3  # of confidences that decide: far above rounding, far below what would hide a leak
IDS = Ids()


class ModelBackend(Backend):
    """Any model behind the engine; ``after_forward`` is called by the worker."""

    capacity = 0

    def __init__(self, model: Any, vocabulary: Any, capacity: int) -> None:
        self.model, self.vocabulary, self.capacity = model, vocabulary, capacity
        self.after_forward: Callable[[], None] = lambda: None

    def reserve(self, num_rows: int) -> int:
        self.rows = poisoned(CursorBatch(self.model, self.vocabulary, num_rows, self.capacity))
        return num_rows

    def prepare(self) -> None: ...

    def check(self, request: Any) -> None: ...

    def batch(self) -> CursorBatch:
        return self.rows

    def decode(self, request: Any, settings: Any) -> Iterator[Event]:
        return decode(self.model, self.vocabulary, [request.prompt_ids], settings)

    def synchronize(self) -> None:
        self.after_forward()


def poisoned(batch: CursorBatch) -> CursorBatch:
    """The batch; memory of a row that leaves is overwritten with NaN."""
    drop, cache = batch.drop, batch.cache

    def poison_and_drop(number: int) -> None:
        place = batch.rows.index(number)
        used = cache.cursors[place] + MAX_FED
        if hasattr(cache, "store"):
            cache.store[:, place, :used] = math.nan
        drop(number)

    batch.drop = poison_and_drop  # type: ignore[method-assign]
    return batch


class Crowd:
    """Requests that arrive and are meddled with at random forwards, all from one seed."""

    def __init__(self, prompts: Sequence[Sequence[int]], seed: int) -> None:
        self.rng = random.Random(seed)
        self.requests = [Request(prompt, self.some_settings(), 600.0) for prompt in prompts]
        self.arrivals = [self.rng.randrange(120) for _ in prompts]
        self.fates = [
            self.rng.choice(["left alone", "left alone", "cancelled", "changed", "changed", "slow"])
            for _ in prompts
        ]
        self.moments = [self.rng.randint(1, 9) for _ in prompts]
        self.runs: dict[int, Run] = {}
        self.num_forwards = 0

    def some_settings(self) -> DecodeSettings:
        rng = self.rng
        return DecodeSettings(
            method=rng.choice(["ar", "mars", "mars", "mars"]),
            tau=rng.choice([0.0, 0.3, 0.6, 0.95]),
            block_size=rng.choice([1, 2, 4, 8]),
            metric=rng.choice(METRICS),
            lossless=rng.random() < 0.4,
            max_new_tokens=rng.randint(1, 36),
            temperature=rng.choice([0.0, 0.0, 0.8]),
            seed=rng.randrange(99),
        )

    def meddle(self, engine: Engine) -> None:
        """Called by the worker after each forward."""
        self.num_forwards += 1
        for number, request in enumerate(self.requests):
            if number not in self.runs and self.arrivals[number] <= self.num_forwards:
                pace = 0.5 if self.fates[number] == "slow" else 0.0
                self.runs[number] = engine.submit(request, pace)
        for number, run in self.runs.items():
            if len(run.events_since(0)) == self.moments[number] and not run.is_finished:
                if self.fates[number] == "cancelled":
                    run.cancel()
                elif self.fates[number] == "changed":
                    most = run.settings.max_new_tokens
                    changed = self.some_settings()
                    run.settings = replace(
                        changed,
                        max_new_tokens=min(most, changed.max_new_tokens),
                        temperature=run.settings.temperature,
                        seed=run.settings.seed,
                    )
                self.moments[number] = -1

    def serve(self, backend: Any) -> None:
        """All of them to their ends, while one long run keeps the forwards coming."""
        engine = Engine(backend, max_runs=NUM_ROWS, max_waiting=NUM_REQUESTS)
        with engine:
            backend.after_forward = partial(self.meddle, engine)
            pacemaker = DecodeSettings("ar", max_new_tokens=150)
            assert engine.submit(Request(self.requests[0].prompt_ids, pacemaker)).wait(250)
            assert len(self.runs) == len(self.requests) or self.num_forwards < 120
            for number, request in enumerate(self.requests):
                if number not in self.runs:
                    self.runs[number] = engine.submit(request)
            assert all(run.wait(250) for run in self.runs.values())
            assert not backend.batch().rows


def alone(model: Any, vocabulary: Any, run: Run) -> list[RowStep]:
    settings = [step.settings for step, _ in row_steps(run.events_since(0))]
    current = SimpleNamespace(settings=run.request.settings)
    events = decode(model, vocabulary, [run.request.prompt_ids], lambda: current.settings)
    collected: list[RowStep] = []
    next(events)
    while len(collected) < len(settings):
        current.settings = settings[len(collected)]
        step = next(events)
        collected += step.rows
    return collected


def outline(step: RowStep) -> tuple[object, ...]:
    tokens = tuple(slot.token for slot in step.proposals)
    return step.start, step.cursor, tokens, step.accepted, step.num_drafted, step.stop


def check_end(run: Run, fate: str) -> None:
    end = run.events_since(0)[-1]
    steps = [step for step, _ in row_steps(run.events_since(0))]
    if steps and steps[-1].stop in ("eos", "limit"):
        assert end.reason == steps[-1].stop
    else:
        assert (end.reason, fate) == ("cancelled", "cancelled")


@pytest.mark.parametrize("seed", [0, 1])
def test_law_2_64_runs_in_company_equal_themselves_alone(seed: int) -> None:
    rng = random.Random(seed)
    prompts = [[rng.randrange(3, 16) for _ in range(rng.randint(1, 40))] for _ in range(64)]
    model = ScriptedModel(foresight_script(seed), max_positions=400)
    crowd = Crowd(prompts, seed)
    crowd.serve(ModelBackend(model, IDS, 200))
    for number, run in crowd.runs.items():
        actual_steps = [outline(step) for step, _ in row_steps(run.events_since(0))]
        assert actual_steps == [outline(step) for step in alone(model, IDS, run)]
        check_end(run, crowd.fates[number])
    assert max(run.num_sharing for run in crowd.runs.values()) >= NUM_ROWS // 2


def is_tied(first: RowStep, other: RowStep) -> bool:
    """Whether two steps of one prefix differ in nothing but a choice that hung on rounding."""
    for a, b in zip(first.proposals, other.proposals, strict=False):
        if a.token != b.token:
            return bool(a.runners_up) and b.token == a.runners_up[0][0]
        if abs(a.confidence - b.confidence) > TIED:
            return False
    tau = first.settings.tau
    return any(abs(slot.confidence - tau) < TIED for slot in first.proposals)


class PoisonedCheckpoint(CheckpointBackend):
    """The bundled checkpoint; ``after_forward`` is called by the worker."""

    after_forward: Callable[[], None] | None = None
    made: Any = None

    def batch(self) -> Any:
        if super().batch() is not self.made:
            self.made = poisoned(super().batch())
        return self.made

    def synchronize(self) -> None:
        if self.after_forward is not None:
            self.after_forward()


@pytest.mark.skipif(
    not (REGISTRY.parent / "mars-tiny" / "config.json").exists(), reason="it is not bundled"
)
@pytest.mark.parametrize("num_runs", [16, pytest.param(NUM_REQUESTS, marks=pytest.mark.slow)])
def test_law_2_on_the_bundled_checkpoint(num_runs: int) -> None:
    from law_checkpoints import task_prompts

    checkpoint = load_checkpoint("mars-tiny", device="cpu", dtype="fp32")
    crowd = Crowd(task_prompts("mars-tiny", num_runs), 7)
    crowd.serve(PoisonedCheckpoint(checkpoint))
    num_tied = 0
    for number, run in crowd.runs.items():
        check_end(run, crowd.fates[number])
        steps = [step for step, _ in row_steps(run.events_since(0))]
        for first, other in zip(
            alone(checkpoint.model, checkpoint.tokenizer, run), steps, strict=True
        ):
            if outline(first) != outline(other):
                assert is_tied(first, other), (first, other)
                num_tied += 1
                break
            for a, b in zip(first.proposals, other.proposals, strict=True):
                assert a.confidence == pytest.approx(b.confidence, abs=TIED)
    assert num_tied <= 1
