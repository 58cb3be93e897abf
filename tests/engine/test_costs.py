"""What a forward costs here, on a clock that is told what to say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from native_models import native_model

from mars_runtime.engine import costs
from mars_runtime.model.threads import Threads


class Timer:
    """One token takes 2 s, each further one 0.2 s, and masks 0.6 s however many they are; further
    ones three times that on a single thread of two."""

    tells_masks = True

    def __init__(self, checkpoint: object, num_rows: int, longest: int) -> None:
        self.fed: list[tuple[int, int]] = []

    def seconds(self, length: int, num_masks: int = 0, count: int = 0) -> float:
        assert num_masks < length, "AR's own token is never a mask"
        further = 0.2 * (length - 1) + (0.6 if num_masks else 0.0)
        return 2 + further * (3 if count == 1 else 1)


class CapturedTimer(Timer):
    tells_masks = False


CHECKPOINT = SimpleNamespace(
    block_size=8, model=SimpleNamespace(device=SimpleNamespace(type="cpu"))
)


def test_tokens_and_masks_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_Timer", Timer)
    found = costs.measure_costs(CHECKPOINT, (1, 4))  # type: ignore[arg-type]
    assert (found.depth, found.seconds) == (8, 2.0)
    assert found.rho[1][:4] == (1.0, 1.1, 1.2, 1.3)
    assert found.masks == {1: pytest.approx(0.3), 4: pytest.approx(0.3)}


def test_costs_are_those_of_the_threads_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_Timer", Timer)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    model = native_model("llama")
    monkeypatch.setattr(model, "threads", Threads())
    found = costs.measure_costs(SimpleNamespace(block_size=8, model=model))  # type: ignore[arg-type]
    assert found.rho[1][:3] == (1.0, 1.1, 1.2)
    for in_force, cost in ((2, 1.1 + 0.3), (1, 1.3 + 0.9), (2, 1.1 + 0.3)):
        model.threads.in_force = in_force
        assert found.curve(1).of(2, 1) == pytest.approx(cost)


def test_a_captured_step_is_timed_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_Timer", CapturedTimer)
    assert costs.measure_costs(CHECKPOINT).masks == {1: 0.0}  # type: ignore[arg-type]
