"""The probe of captured steps works under a runner that puts the state back, as a capture does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import pytest
import torch

from mars_runtime.decoders.static import batch
from mars_runtime.decoders.static.batch import StepProbe
from mars_runtime.model.load import load_checkpoint


class Restoring:
    """Runs a function and puts back what it changed, in place."""

    def __init__(self, device: torch.device, changed: Sequence[torch.Tensor]) -> None:
        self._changed = changed

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        saved = [tensor.clone() for tensor in self._changed]
        function()
        for tensor, before in zip(self._changed, saved, strict=True):
            tensor.copy_(before)


def test_state_made_in_inference_mode_is_put_back(
    random_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "new_runner", Restoring)
    model = load_checkpoint(str(random_folder), device="cpu", dtype="fp32").model
    StepProbe(model, 2, 16).run(3)  # type: ignore[arg-type]
