"""The split of a step on operations by hand, and the command on a checkpoint of toy size."""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

import pytest
import torch

from mars_runtime.lab.profiling import cli
from mars_runtime.lab.profiling.forward import Load
from mars_runtime.lab.profiling.limits import Limits
from mars_runtime.lab.profiling.record import Recording
from mars_runtime.lab.profiling.report import lines_of, split_table
from mars_runtime.lab.profiling.split import FORWARD, HEAD, STEP, Operation, split, typical

# A prefill outside of any step, then a step: two products, attention with one inside, the head.
OPERATIONS = [
    Operation("aten::mm", None, 100.0),
    Operation(STEP, None, 50.0),
    Operation("aten::zeros", 1, 1.0),
    Operation(FORWARD, 1, 50.0),
    Operation("aten::embedding", 3, 2.0),
    Operation("aten::addmm", 3, 4.0),
    Operation("aten::scaled_dot_product_attention", 3, 1.0),
    Operation("aten::_scaled_dot_product_attention_math", 6, 1.0),
    Operation("aten::bmm", 7, 6.0),
    Operation("aten::linear", 3, 0.5),
    Operation("aten::mm", 9, 8.0),
    Operation(HEAD, 1, 50.0),
    Operation("aten::mm", 11, 16.0),
    Operation("aten::softmax", 1, 32.0),
]
PARTS = {
    "matmuls": 12.5,
    "attention": 8.0,
    "head": 16.0,
    "elementwise": 2.0,
    "acceptance": 33.0,
}


def test_operations_go_to_the_part_they_stand_in():
    assert split(OPERATIONS) == [PARTS]


def test_steps_are_told_apart_and_the_median_counts():
    def step(seconds: float, first: int) -> list[Operation]:
        return [
            Operation(STEP, None, 9.0),
            Operation(FORWARD, first, 9.0),
            Operation("aten::mm", first + 1, 1.0),
            Operation(HEAD, first, 9.0),
            Operation("aten::mm", first + 3, seconds),
        ]

    operations = [*step(1.0, 0), *step(2.0, 5), *step(90.0, 10)]
    steps = split(operations)
    assert [one["head"] for one in steps] == [1.0, 2.0, 90.0]
    found = typical(steps, 4.0)
    assert (found["head"], found["matmuls"], found["overhead"]) == (2.0, 1.0, 1.0)
    assert typical(steps, 0.5)["overhead"] == 0.0


def test_parts_stand_beside_their_limits():
    recording = Recording(split(OPERATIONS), 1, 100.0, 150.0, num_tokens=4, num_slots=2)
    load = Load(weight_bytes=30, head_bytes=10, body_weights=5, head_weights=2, position_bytes=0)
    lines = {line.part: line for line in lines_of(recording, load, Limits(1, 5.0, 2.0))}
    assert lines["matmuls"].read_seconds == 4.0
    assert lines["matmuls"].compute_seconds == 20.0
    assert lines["head"].read_seconds == 2.0
    assert lines["head"].compute_seconds == 4.0
    assert lines["attention"].read_seconds is None
    assert lines["overhead"].seconds == pytest.approx(100 - 71.5)
    assert sum(line.share for line in lines.values()) == pytest.approx(2.0)
    table = split_table("AR", recording, list(lines.values()))
    assert "1.50 times as long when profiled" in table.title
    assert [line[0] for line in table.lines][-1] == "step"
    assert {line[0]: line[5] for line in table.lines}["head"] == "25%"


@pytest.fixture
def done(random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("mars_runtime.lab.profiling.limits.SECONDS", 0.01)
    assert run("--checkpoint", str(random_folder), "--steps", "12", "--out", str(tmp_path)) == 0
    return tmp_path


def run(*given: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    threads = torch.get_num_threads()
    try:
        return cli.run(parser.parse_args(["profile", *given]))
    finally:
        torch.set_num_threads(threads)


def test_a_profile_leaves_traces_and_a_split(done: Path):
    found = json.loads((done / "profile.json").read_text())
    assert re.fullmatch("[0-9a-f]{16}", found["subject"]["fingerprint"])
    assert list(found["ways"]) == ["AR", "MARS τ=0.95 B=4", "lossless τ=0 B=8"]
    for way in found["ways"].values():
        parts = {line["part"]: line for line in way["parts"]}
        assert list(parts) == [*PARTS, "overhead", "step"]
        for part in PARTS:
            assert parts[part]["seconds"] > 0
        with gzip.open(done / way["trace"], "rt", encoding="utf-8") as file:
            names = {event.get("name") for event in json.load(file)["traceEvents"]}
        assert {STEP, FORWARD, HEAD} <= names


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--steps", "0"], "at least 1 of steps"),
        (["--tau", "7"], "τ must be a number"),
        (["--checkpoint", "nobody"], "nobody"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert run(*given) == 2
    assert said in capsys.readouterr().err
