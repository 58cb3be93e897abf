"""The cost of forward passes and the bandwidth of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mars_runtime.lab.benchmark.forward import (
    bandwidth,
    best_seconds,
    forward_times,
    rho_curve,
    work_of,
)
from mars_runtime.model.load import load_checkpoint


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
