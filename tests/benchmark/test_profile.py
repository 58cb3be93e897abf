"""The cost of forward passes and the bandwidth of the machine; the command profile on a tiny
checkpoint."""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mars_runtime.lab.benchmark import profile
from mars_runtime.lab.benchmark.forward import (
    bandwidth,
    best_seconds,
    forward_times,
    rho_curve,
    work_of,
)
from mars_runtime.lab.benchmark.profile import STEP, kernel_seconds
from mars_runtime.model.load import load_checkpoint


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


def run(*given: str) -> int:
    parser = argparse.ArgumentParser()
    profile.add_parser(parser.add_subparsers(dest="command"))
    threads = torch.get_num_threads()
    try:
        return profile.run(parser.parse_args(["profile", *given]))
    finally:
        torch.set_num_threads(threads)


def test_a_profile_leaves_traces_and_times(random_folder: Path, tmp_path: Path):
    arguments = ("--checkpoint", str(random_folder), "--steps", "6", "--out", str(tmp_path))
    assert run(*arguments) == 0
    document = json.loads((tmp_path / "profile.json").read_text())
    assert re.fullmatch("[0-9a-f]{16}", document["subject"]["fingerprint"])
    assert list(document["ways"]) == [
        *("AR", "MARS τ=0.95 B=4"),
        *("lossless τ=0 B=8", "lossless τ=0 B=8 groups + lookup"),
    ]
    for method in document["ways"].values():
        assert method["num_steps"] == 6
        assert method["step_seconds"] > 0
        with gzip.open(tmp_path / method["trace"], "rt", encoding="utf-8") as file:
            names = {event.get("name") for event in json.load(file)["traceEvents"]}
        assert STEP in names


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--steps", "0"], "--steps must be at least 1"),
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
    width_one, three = rho_curve(4, rounds)
    assert (width_one.width, width_one.rho.value, width_one.num_rows) == (1, 1.0, 4)
    assert three.rho.value == pytest.approx(1.5)
    assert three.seconds == 3.0


def test_work_counts_every_weight_once(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    work = work_of(model)
    config = model.config
    size, inner = config.hidden_size, config.intermediate_size
    attention = size * (config.num_heads + 2 * config.num_kv_heads) * config.head_dim + size * size
    layers = config.num_layers * (attention + 3 * size * inner)
    matrices = layers + config.vocab_size * size
    assert 0 < work.weight_bytes // 4 - matrices < 0.02 * layers
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4
    assert work.num_bytes(3, 10) == work.weight_bytes + 30 * position


def test_forwards_of_every_width_are_timed(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    rounds = forward_times(model, 2, (1, 3), 16, 4)
    assert len(rounds) == 4
    assert all(set(item) == {1, 3} and min(item.values()) > 0 for item in rounds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_the_bandwidth_is_measured(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mars_runtime.lab.benchmark.forward.PROBE_SECONDS", 0.01)
    assert bandwidth(torch.device("cpu"), dtype, 1 << 20) > 1e8
    assert best_seconds(lambda: None, torch.device("cpu")) < 0.01
