"""The cost of forward passes by their number of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from mars_runtime.lab.benchmark.forward import forward_times, rho_curve
from mars_runtime.model.load import load_checkpoint


def test_rho_is_the_median_of_paired_ratios():
    rounds = [{1: 1.0, 3: 1.5}, {1: 2.0, 3: 3.0}, {1: 1.0, 3: 9.0}]
    width_one, three = rho_curve(4, rounds)
    assert (width_one.width, width_one.rho.value, width_one.num_rows) == (1, 1.0, 4)
    assert three.rho.value == pytest.approx(1.5)
    assert three.seconds == 3.0


def test_forwards_of_every_width_are_timed(random_folder: Path):
    model = load_checkpoint(str(random_folder), device="cpu").model
    rounds = forward_times(model, 2, (1, 3), 16, 4)
    assert len(rounds) == 4
    assert all(set(item) == {1, 3} and min(item.values()) > 0 for item in rounds)
