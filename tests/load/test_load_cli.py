"""The command from arguments to files, on a checkpoint of toy size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.__main__ import main
from mars_runtime.lab.load import measurements
from tests.tiny_checkpoint import write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(Path(tmp_path_factory.mktemp("tiny")), max_positions=1024)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "ROUNDS", 2)
    monkeypatch.setattr(measurements, "TRIALS", 2)
    monkeypatch.setattr(measurements, "SHARES", (0.5, 1.2))
    monkeypatch.setattr(measurements, "DAY_REQUESTS", 200)


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    small = [
        *("--rows", "2", "--seconds", "0.5", "--rounds", "1"),
        *("--prompts", "2", "--max-new-tokens", "4"),
    ]
    return ["load", "--checkpoint", str(folder), *small, "--out", str(out), *more]


def test_one_run_writes_every_table(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "load.json"
    assert main(arguments(folder, out)) == 0
    found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    assert found["kind"] == "load"
    assert found["is_whole"] is True
    assert {"commit", "hardware", "versions", "date"} <= found.keys()
    sections = found["sections"]
    assert {*sections} == {
        "throughput", "first_token", "saturation", "controller", "simulated_day",
    }  # fmt: skip
    assert all(each["times"] > 0 for each in sections["throughput"].values())
    assert {len(each) for each in sections["first_token"]["first_seconds"].values()} == {2}
    assert len(sections["saturation"]["points"]) == 2
    cells = sections["controller"]["cells"]
    assert [(each["load"], each["way"]) for each in cells][:2] == [
        (0.8, "plain AR"), (0.8, "lossless"),
    ]  # fmt: skip
    assert all(each["agreement"] in (None, 1.0) for each in cells if each["way"] == "lossless")
    told = out.with_suffix(".md").read_text("utf-8")
    assert "A simulation: nobody served this day." in told
    assert "while another decodes" in told


def test_a_run_that_is_stopped_keeps_what_it_measured(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measurements.Follow, "_cell", lambda *_: {})
    monkeypatch.setattr(measurements.Follow, "measure", stopped)
    out = tmp_path / "load.json"
    assert main(arguments(folder, out, "--parts", "controller")) == 130
    found = json.loads(out.read_text("utf-8"))
    assert found["is_whole"] is False
    assert found["sections"].keys() == {"saturation"}
    assert "The run was stopped" in out.with_suffix(".md").read_text("utf-8")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--rows", "1"], "Ask for 2 to 64 rows."),
        (["--rounds", "0"], "Ask for at least 1 of rounds."),
        (["--seconds", "nan"], "Ask for 0.5 to 3600 seconds of arrivals."),
        (["--max-new-tokens", "1"], "Ask for answers of 2 to 1024 tokens."),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(folder, tmp_path, capsys, more, sentence) -> None:
    assert main(arguments(folder, tmp_path / "load.json", *more)) == 2
    assert capsys.readouterr().err == sentence + "\n"


def test_out_is_checked_before_anything_is_loaded(folder, tmp_path, capsys) -> None:
    assert main(arguments(Path("nowhere"), tmp_path)) == 2
    assert "is a folder: name a file to write." in capsys.readouterr().err
