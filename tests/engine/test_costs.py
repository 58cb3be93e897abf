"""What a forward costs here, on a clock that is told what to say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mars_runtime.engine import costs


class Timer:
    """One token takes 2 s, each further one 0.2 s, and masks 0.6 s however many they are."""

    tells_masks = True

    def __init__(self, checkpoint: object, num_rows: int, longest: int) -> None:
        self.fed: list[tuple[int, int]] = []

    def seconds(self, length: int, num_masks: int = 0) -> float:
        assert num_masks < length, "AR's own token is never a mask"
        return 2 + 0.2 * (length - 1) + (0.6 if num_masks else 0.0)


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


def test_a_captured_step_is_timed_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_Timer", CapturedTimer)
    assert costs.measure_costs(CHECKPOINT).masks == {1: 0.0}  # type: ignore[arg-type]
