"""The grid and the keys of its cells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars_runtime.lab.evaluation.plan import Cell, Grid, digest
from mars_runtime.settings import DecodeSettings, SettingsError, describe

CELL = Cell("mars-tiny", "f00d", "float32", "symbolic", "cafe", 50, DecodeSettings())


def test_grid_is_ar_then_mars_then_lossless():
    grid = Grid(taus=(0.5, 0.95), block_sizes=(2, 4), lossless_taus=(0.0,))
    assert [describe(settings) for settings in grid.settings()] == [
        "AR",
        "MARS τ=0.5 B=2",
        "MARS τ=0.95 B=2",
        "MARS τ=0.5 B=4",
        "MARS τ=0.95 B=4",
        "lossless τ=0 B=8",
    ]


def test_thresholds_that_adapt_stand_beside_the_fixed_ones():
    grid = Grid(
        taus=(0.5, 0.9),
        thresholds=("fixed", "entropy", "agreement"),
        targets=(0.8, 0.95),
        lossless_taus=(),
    )
    assert [describe(settings) for settings in grid.settings()] == [
        "AR",
        "MARS τ=0.5 B=4",
        "MARS τ=0.9 B=4",
        "MARS entropy τ=0.5 B=4",
        "MARS entropy τ=0.9 B=4",
        "MARS agreement 0.8 τ≥0 B=4",
        "MARS agreement 0.95 τ≥0 B=4",
    ]
    assert describe(DecodeSettings("jacobi")) == "Jacobi B=4"


def test_other_methods_are_measured_where_they_are_asked():
    grid = Grid(
        block_sizes=(4,),
        lossless_taus=(),
        methods=("mars", "jacobi", "speculative", "block_diffusion"),
        drafts=("small",),
    )
    places = ("no masks", "masks in target", "masks in draft", "masks in both")
    others = ["Jacobi B=4", *(f"speculative small K=4, {place}" for place in places)]
    assert [describe(each) for each in grid.limited_to(8).settings()] == [
        "AR",
        "MARS τ=0.95 B=4",
        *others,
    ]
    twin = grid.limited_to(8, fills_blocks=True)
    assert [describe(each) for each in twin.settings()] == ["AR", "block diffusion τ=0.95 B=4"]


def test_grid_refuses_values_out_of_range():
    with pytest.raises(SettingsError, match="τ"):
        list(Grid(taus=(1.5,)).settings())


def test_depth_that_was_not_trained_is_left_out():
    grid = Grid(block_sizes=(2, 4, 16), lossless_block_sizes=(8,))
    assert grid.limited_to(8).block_sizes == (2, 4)
    assert [settings.method for settings in grid.limited_to(1).settings()] == ["ar"]


def test_unusual_metric_is_named():
    assert describe(DecodeSettings(metric="margin")) == "MARS τ=0.95 B=4 margin"


@pytest.mark.parametrize(
    "other",
    [
        replace(CELL, fingerprint="beef"),
        replace(CELL, prompts_id="beef"),
        replace(CELL, dtype="bfloat16"),
        replace(CELL, settings=DecodeSettings(tau=0.9)),
        replace(CELL, settings=DecodeSettings(lossless=True)),
        replace(CELL, settings=DecodeSettings(max_new_tokens=16)),
    ],
)
def test_whatever_changes_a_result_changes_the_key(other: Cell):
    assert other.key != CELL.key


def test_digest_sees_borders():
    assert digest(["ab", "c"]) != digest(["a", "bc"])


def test_groups_and_lookup_are_measured_where_they_are_asked():
    grid = Grid(taus=(), lossless_block_sizes=(4, 2), groups=("one", "every"), has_lookup=True)
    assert [describe(settings) for settings in grid.settings()] == [
        "AR",
        "lossless τ=0 B=4",
        "lossless τ=0 B=2",
        "lossless τ=0 B=4 groups",
        "lossless τ=0 B=2 groups",
        "lookup alone",
        "lossless τ=0 B=4 groups + lookup",
        "lossless τ=0 B=2 groups + lookup",
    ]
    assert all(one.lossless for one in list(grid.settings())[1:])
