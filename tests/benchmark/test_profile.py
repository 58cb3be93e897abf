"""What a forward must do and what the machine allows; the split of a step on operations by hand,
and the command on a checkpoint of toy size."""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mars_runtime.lab.benchmark import cli
from mars_runtime.lab.benchmark.forward import (
    ForwardWork,
    MachineLimits,
    best_seconds,
    forward_times,
    measure_limits,
    rho_curve,
    work_of,
)
from mars_runtime.lab.benchmark.profile import (
    FORWARD,
    HEAD,
    STEP,
    Operation,
    Recording,
    kernel_seconds,
    lines_of,
    split,
    split_table,
    typical,
)
from mars_runtime.model.load import load_checkpoint

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
    recording = Recording(split(OPERATIONS), 1, 100.0, 150.0, num_tokens=4, num_logits=2)
    work = ForwardWork(
        weight_bytes=30, head_bytes=10, body_weights=5, head_weights=2, position_bytes=0
    )
    lines = {line.part: line for line in lines_of(recording, work, MachineLimits(1, 5.0, 2.0))}
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


def event(name: str, device: str, start: float, end: float) -> SimpleNamespace:
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    return SimpleNamespace(name=name, device_type=f"DeviceType.{device}", time_range=span)


def test_kernels_of_steps_are_counted_without_prefill():
    events = [
        event("kernel of the prefill", "CUDA", 0, 50),
        event(STEP, "CPU", 100, 200),
        event(STEP, "CUDA", 100, 200),
        event("kernel", "CUDA", 110, 140),
        event("aten::mm", "CPU", 100, 190),
        event(STEP, "CPU", 300, 400),
        event("kernel of a graph", "CUDA", 320, 370),
        event("kernel after it", "CUDA", 400, 490),
    ]
    assert kernel_seconds(events) == pytest.approx(40e-6)


@pytest.fixture
def done(random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.SECONDS", 0.01)
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
    assert list(found["ways"]) == [
        *("AR", "MARS τ=0.95 B=4"),
        *("lossless τ=0 B=8", "lossless τ=0 B=8 groups + lookup"),
    ]
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


def test_rho_is_the_median_of_paired_ratios():
    rounds = [{1: 1.0, 3: 1.5}, {1: 2.0, 3: 3.0}, {1: 1.0, 3: 9.0}]
    one, three = rho_curve(4, rounds)
    assert (one.width, one.rho.value, one.num_rows) == (1, 1.0, 4)
    assert three.rho.value == pytest.approx(1.5)
    assert three.seconds == 3.0


def test_work_counts_every_weight_once(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    work = work_of(model)
    config = model.config
    size, inner = config.hidden_size, config.intermediate_size
    attention = size * (config.num_heads + 2 * config.num_kv_heads) * config.head_dim + size * size
    assert work.body_weights == config.num_layers * (attention + 3 * size * inner)
    assert work.head_weights == config.vocab_size * size
    vectors = work.weight_bytes // 4 - work.body_weights - work.head_weights
    assert 0 < vectors < 0.02 * work.body_weights
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4
    assert work.num_bytes(3, 10) == work.weight_bytes + 30 * position
    assert work.operations(5, 2) == 2 * (5 * work.body_weights + 2 * work.head_weights)


def test_forwards_of_every_width_are_timed(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    rounds = forward_times(model, 2, (1, 3), 16, 4)
    assert len(rounds) == 4
    assert all(set(one) == {1, 3} and min(one.values()) > 0 for one in rounds)


def test_the_slower_of_reading_and_computing_is_the_least_time():
    limits = MachineLimits(100, bytes_per_second=10.0, operations_per_second=5.0)
    assert limits.floor_seconds(100, 5.0) == 10.0
    assert limits.floor_seconds(10, 50.0) == 10.0


def test_where_no_limit_of_computing_is_known_reading_alone_counts():
    limits = MachineLimits(100, bytes_per_second=10.0, operations_per_second=None)
    assert limits.compute_seconds(5.0) is None
    assert limits.floor_seconds(100, 5.0) == 10.0


@pytest.mark.parametrize(("whole", "expected"), [(0.5, 4 * 768**3), (2.0, None)])
def test_a_product_of_whole_numbers_slower_than_fp32_is_no_limit(
    whole: float, expected: float | None, monkeypatch: pytest.MonkeyPatch
):
    def seconds(work: Callable[[], torch.Tensor], _: torch.device) -> float:
        return whole if work().dtype == torch.int32 else 1.0

    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.best_seconds", seconds)
    found = measure_limits(torch.device("cpu"), torch.int8, 1 << 12)
    assert found.operations_per_second == expected


def test_limits_are_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.SECONDS", 0.01)
    found = measure_limits(torch.device("cpu"), torch.float32, 1 << 20)
    assert found.working_set == 1 << 20
    assert found.bytes_per_second > 1e8
    assert found.operations_per_second
    assert found.operations_per_second > 1e8
    assert best_seconds(lambda: None, torch.device("cpu")) < 0.01


def test_a_limit_is_the_better_of_two_times() -> None:
    one, other = MachineLimits(8, 50.0, None), MachineLimits(8, 40.0, 3.0)
    assert one.better(other) == other.better(one) == MachineLimits(8, 50.0, 3.0)
    assert one.better(one) == one
