"""What a forward must do, and rho from rounds by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mars_runtime.lab.profiling.forward import forward_times, load_of, rho_curve
from mars_runtime.lab.profiling.limits import Limits, best_seconds, measure_limits
from mars_runtime.model.load import load_checkpoint


def test_rho_is_the_median_of_paired_ratios():
    rounds = [{1: 1.0, 3: 1.5}, {1: 2.0, 3: 3.0}, {1: 1.0, 3: 9.0}]
    one, three = rho_curve(4, rounds)
    assert (one.width, one.rho.value, one.num_rows) == (1, 1.0, 4)
    assert three.rho.value == pytest.approx(1.5)
    assert three.seconds == 3.0


def test_a_load_counts_every_weight_once(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    load = load_of(model)
    config = model.config
    size, inner = config.hidden_size, config.intermediate_size
    attention = size * (config.num_heads + 2 * config.num_kv_heads) * config.head_dim + size * size
    assert load.body_weights == config.num_layers * (attention + 3 * size * inner)
    assert load.head_weights == config.vocab_size * size
    vectors = load.weight_bytes // 4 - load.body_weights - load.head_weights
    assert 0 < vectors < 0.02 * load.body_weights
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4
    assert load.num_bytes(3, 10) == load.weight_bytes + 30 * position
    assert load.operations(5, 2) == 2 * (5 * load.body_weights + 2 * load.head_weights)


def test_forwards_of_every_width_are_timed(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    rounds = forward_times(model, 2, (1, 3), 16, 4)
    assert len(rounds) == 4
    assert all(set(one) == {1, 3} and min(one.values()) > 0 for one in rounds)


def test_the_slower_of_reading_and_computing_is_the_least_time():
    limits = Limits(100, bytes_per_second=10.0, operations_per_second=5.0)
    assert limits.floor_seconds(100, 5.0) == 10.0
    assert limits.floor_seconds(10, 50.0) == 10.0


def test_where_no_limit_of_computing_is_known_reading_alone_counts():
    limits = Limits(100, bytes_per_second=10.0, operations_per_second=None)
    assert limits.compute_seconds(5.0) is None
    assert limits.floor_seconds(100, 5.0) == 10.0


@pytest.mark.parametrize(("whole", "expected"), [(0.5, 4 * 768**3), (2.0, None)])
def test_a_product_of_whole_numbers_slower_than_fp32_is_no_limit(
    whole: float, expected: float | None, monkeypatch: pytest.MonkeyPatch
):
    def seconds(work: Callable[[], torch.Tensor], _: torch.device) -> float:
        return whole if work().dtype == torch.int32 else 1.0

    monkeypatch.setattr("mars_runtime.lab.profiling.limits.best_seconds", seconds)
    found = measure_limits(torch.device("cpu"), torch.int8, 1 << 12)
    assert found.operations_per_second == expected


def test_limits_are_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mars_runtime.lab.profiling.limits.SECONDS", 0.01)
    found = measure_limits(torch.device("cpu"), torch.float32, 1 << 20)
    assert found.working_set == 1 << 20
    assert found.bytes_per_second > 1e8
    assert found.operations_per_second
    assert found.operations_per_second > 1e8
    assert best_seconds(lambda: None, torch.device("cpu")) < 0.01
