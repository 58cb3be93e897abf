"""What visitors can make the server load, and memory that ends on the way: one sentence each."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from app.engines import engines as module
from app.engines.engines import (
    CheckpointLoad,
    Engines,
    UnavailableError,
    check_memory,
    read_entries,
)
from app.settings import AppSettings, AppSettingsError
from mars_runtime.__main__ import main
from mars_runtime.engine.request import Request
from mars_runtime.model import load
from mars_runtime.model.config import CheckpointError, MemoryShortError
from mars_runtime.model.registry import registry
from mars_runtime.model.source import resolve
from mars_runtime.serving.server import ServePlan, bring
from mars_runtime.settings import DecodeSettings

TOO_MUCH = 1 << 50
TINY = "mars-tiny"


def _no_thread() -> None:
    raise RuntimeError("can't start new thread")


ENDS: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.empty(TOO_MUCH),
    "numpy": lambda: np.empty(TOO_MUCH),
    "python": lambda: bytearray(1 << 62),
    "system": lambda: mmap.mmap(-1, TOO_MUCH),
    "threads": _no_thread,
}


@pytest.mark.parametrize("end", ENDS)
def test_weights_that_find_no_memory_are_a_sentence_of_each_command(
    end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "build_model", lambda *given, **named: ENDS[end]())
    assert main(["generate", "--prompt", "hi", "--checkpoint", TINY]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"There is not enough memory for {TINY}")
    with pytest.raises(MemoryShortError, match=f"There is not enough memory for {TINY}"):
        bring(ServePlan(TINY))


def test_a_page_serves_the_checkpoint_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 0.0)
    engines = Engines(AppSettings(checkpoint=TINY))
    try:
        served = engines.get(TINY)
        assert served is not None
        with monkeypatch.context() as patch:
            patch.setattr(load, "build_model", lambda *given, **named: ENDS["torch"]())
            with pytest.raises(UnavailableError, match="There is not enough memory for ar-tiny"):
                engines.get("ar-tiny")
        run = served.engine.submit(Request([1, 2, 3], DecodeSettings("ar", max_new_tokens=4)))
        assert run.wait(60)
        assert engines.get(TINY) is served
    finally:
        engines.close()


def test_a_checkpoint_that_fails_does_not_name_its_folder(tmp_path: Path) -> None:
    for said, read in (
        ("{}/model.safetensors is missing.", "model.safetensors is missing."),
        ("One can not be written to {} (no room).", "One can not be written to mars (no room)."),
        ("{}/a and {}/b: see https://x.org/y/z.", "a and b: see https://x.org/y/z."),
    ):
        error = CheckpointError(said.replace("{}", str(tmp_path / "mars")))
        load = CheckpointLoad("a checkpoint", MagicMock(side_effect=error))
        with pytest.raises(UnavailableError) as raised:
            load.wait(30)
        assert str(raised.value) == load.failure == load.trouble == read


def test_only_what_the_operator_lists_can_be_chosen() -> None:
    entries = read_entries(TINY)
    assert next(iter(entries)) == TINY
    assert all(entry.hub is None or entry.is_small_enough for entry in entries.values())
    engines = Engines(AppSettings(checkpoint=TINY))
    for name in ("mars-7b-blk4", "../../etc", "Xalphinions/MARS-Qwen2.5-7B-blk4"):
        with pytest.raises(UnavailableError, match="from the list"):
            engines.get(name, 0.0)
    assert list(read_entries(TINY, "mars-7b-blk4, ar-tiny")) == [TINY, "ar-tiny", "mars-7b-blk4"]
    assert read_entries("ar-tiny", "all").keys() == registry().keys()
    assert list(read_entries("mars-7b-blk4", "ar-tiny")) == ["mars-7b-blk4", "ar-tiny"]
    with pytest.raises(AppSettingsError, match="an unknown checkpoint, nobody"):
        read_entries(TINY, "ar-tiny,nobody")


def write_head(folder: Path, *shapes: list[int]) -> Path:
    folder.mkdir()
    head = {str(n): {"dtype": "BF16", "shape": shape} for n, shape in enumerate(shapes)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    (folder / "config.json").write_text("{}")
    return folder


def test_what_does_not_fit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_head(tmp_path / "seven", [3584, 152064], [7_000, 1_000_000])
    source = resolve(str(folder))
    for free, has_native, dtype in (
        (24_000_000_000, False, "bf16"),
        (24_000_000_000, True, "auto"),  # in int8
        (None, False, "auto"),
    ):
        monkeypatch.setattr("app.engines.engines.free_memory", lambda free=free: free)
        monkeypatch.setattr("mars_runtime.model.build.has_native", lambda has=has_native: has)
        check_memory(source, "cpu", dtype)
    monkeypatch.setattr("app.engines.engines.free_memory", lambda: 24_000_000_000)
    with pytest.raises(CheckpointError, match=r"seven needs about 39\.2 GB .* 24\.0 GB are free"):
        check_memory(source, "cpu", "fp32")
    monkeypatch.setattr("app.engines.engines.free_memory", lambda: 1)
    for head in (b"", b"\xff" * 8, b"\x02" + b"\x00" * 7 + b"[]", b"\x01" * 20):  # damaged
        (folder / "model.safetensors").write_bytes(head)
        check_memory(source, "cpu", "fp32")


def test_engines_ask_first(tmp_path: Path) -> None:
    folder = write_head(tmp_path / "huge", [10**6, 10**7])
    engines = Engines(AppSettings(checkpoint=str(folder)))
    with pytest.raises(UnavailableError, match="of memory"):
        engines.get(str(folder), 60)
