"""What visitors can make the server load: only what is listed, only where it fits."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from app.serving.engines import Engines, UnavailableError, check_memory, num_weights, read_entries
from app.serving.settings import AppSettings, AppSettingsError
from mars_runtime.machine import free_memory
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry, registry


def test_by_default_nothing_of_the_hub_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = read_entries("mars-tiny")
    assert next(iter(entries)) == "mars-tiny"
    assert "ar-tiny" in entries
    assert all(entry.hub is None for entry in entries.values())
    monkeypatch.setattr(Engines, "_load", lambda engines, name: pytest.fail(f"{name} was loaded"))
    engines = Engines(AppSettings(checkpoint="mars-tiny"))
    for name in ("mars-7b-blk4", "../../etc", "Xalphinions/MARS-Qwen2.5-7B-blk4"):
        with pytest.raises(UnavailableError, match="from the list"):
            engines.get(name, 0.0)


def test_the_operator_lists_more() -> None:
    assert list(read_entries("mars-tiny", "mars-7b-blk4, ar-tiny")) == [
        "mars-tiny",
        "ar-tiny",
        "mars-7b-blk4",
    ]
    assert read_entries("ar-tiny", "all").keys() == registry().keys()
    assert list(read_entries("mars-7b-blk4", "ar-tiny")) == ["mars-7b-blk4", "ar-tiny"]
    with pytest.raises(AppSettingsError, match="no checkpoint nobody to offer"):
        read_entries("mars-tiny", "ar-tiny,nobody")


def test_a_branch_that_may_change_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = {
        "pinned": Entry("pinned", 4, hub="a/b", revision="0" * 40),
        "loose": Entry("loose", 4, hub="a/c"),
        "bundled": Entry("bundled", 4, path="bundled"),
    }
    monkeypatch.setattr("app.serving.engines.registry", lambda: dict(known))
    with caplog.at_level(logging.WARNING):
        read_entries("bundled", "all")
    (warning,) = caplog.messages
    assert "loose is whatever the branch main of a/c holds" in warning
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        read_entries("bundled")
    assert caplog.messages == []


def write_head(folder: Path, *shapes: list[int]) -> Path:
    """A checkpoint's head without its weights."""
    folder.mkdir()
    head = {str(n): {"dtype": "BF16", "shape": shape} for n, shape in enumerate(shapes)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    return folder


def test_what_does_not_fit_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_head(tmp_path / "seven", [3584, 152064], [7_000, 1_000_000])
    assert num_weights(folder) == 3584 * 152064 + 7_000_000_000
    monkeypatch.setattr("app.serving.engines.free_memory", lambda: 24_000_000_000)
    with pytest.raises(CheckpointError, match=r"seven needs some 39\.2 GB .* 24\.0 GB are free"):
        check_memory("seven", folder, "cpu", "auto")
    check_memory("seven", folder, "cpu", "bf16")
    monkeypatch.setattr("app.serving.engines.free_memory", lambda: None)
    check_memory("seven", folder, "cpu", "auto")


def test_engines_ask_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_head(tmp_path / "huge", [10**6, 10**7])
    (folder / "config.json").write_text("{}")
    engines = Engines(AppSettings(checkpoint=str(folder)))
    with pytest.raises(UnavailableError, match="of memory"):
        engines.get(str(folder), 60)


@pytest.mark.parametrize("head", [b"", b"\xff" * 8, b"\x02" + b"\x00" * 7 + b"[]", b"\x01" * 20])
def test_a_damaged_head_says_nothing(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(head)
    assert num_weights(tmp_path) == 0


def test_free_memory_is_told() -> None:
    free = free_memory()
    assert free is None or 0 < free < 2**50
