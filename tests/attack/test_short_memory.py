"""Memory that ends while a checkpoint is loaded: one sentence, and others are served on."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import pytest
import torch

from app.engines import engines as module
from app.engines.engines import Engines, UnavailableError
from app.settings import AppSettings
from mars_runtime.__main__ import main
from mars_runtime.engine.request import Request
from mars_runtime.model import load
from mars_runtime.model.config import MemoryShortError
from mars_runtime.serving.server import ServePlan, bring
from mars_runtime.settings import DecodeSettings

TOO_MUCH = 1 << 50


def _no_thread() -> None:
    raise RuntimeError("can't start new thread")


ENDS: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.empty(TOO_MUCH),
    "numpy": lambda: np.empty(TOO_MUCH),
    "python": lambda: bytearray(1 << 62),
    "system": lambda: mmap.mmap(-1, TOO_MUCH),
    "threads": _no_thread,
}


@pytest.fixture(params=ENDS)
def short_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that find no memory."""
    monkeypatch.setattr(load, "build_model", lambda *given, **named: ENDS[request.param]())


@pytest.mark.usefixtures("short_memory")
def test_generate_ends_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--prompt", "hi", "--checkpoint", "mars-tiny"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("There is not enough memory for mars-tiny")


@pytest.mark.usefixtures("short_memory")
def test_serve_says_so_too() -> None:
    with pytest.raises(MemoryShortError, match="There is not enough memory for mars-tiny"):
        bring(ServePlan("mars-tiny"))


def test_an_engine_without_memory_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = "mars_runtime.engine.backend.CheckpointBackend.reserve"
    monkeypatch.setattr(backend, lambda *given: ENDS["torch"]())
    with pytest.raises(MemoryShortError):
        bring(ServePlan("mars-tiny"))
    assert main(["generate", "--prompt", "hi", "--checkpoint", "mars-tiny"]) == 2


def test_a_page_serves_the_checkpoint_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    engines = Engines(AppSettings(checkpoint="mars-tiny"))
    try:
        served = engines.get("mars-tiny")
        assert served is not None
        with monkeypatch.context() as patch:
            patch.setattr(load, "build_model", lambda *given, **named: ENDS["torch"]())
            with pytest.raises(UnavailableError, match="There is not enough memory for ar-tiny"):
                engines.get("ar-tiny")
        run = served.engine.submit(Request([1, 2, 3], DecodeSettings("ar", max_new_tokens=4)))
        assert run.wait(60)
        assert engines.get("mars-tiny") is served
    finally:
        engines.close()
