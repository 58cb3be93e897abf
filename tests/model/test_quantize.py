"""Matrices in 8 bits: near to fp32, the same for a token in every forward, refused where absent."""

from __future__ import annotations

import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from gguf.quants import quantize as gguf_quantize
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.quantized import (
    GroupedMatrix,
    add_product,
    can_quantize,
    multiply,
    quantize,
)
from tests.tiny_checkpoint import write_checkpoint

needs_kernels = pytest.mark.skipif(not can_quantize(), reason="int8 kernels exist on x86 only")
PROMPTS = ["Count 12 foxes", "Say hello", "a b c d e f g"]


@needs_kernels
def test_a_product_is_near_to_that_of_fp32() -> None:
    torch.manual_seed(0)
    matrix, x = torch.randn(64, 48), torch.randn(5, 64) * torch.logspace(-2, 2, 5).unsqueeze(1)
    exact = x @ matrix
    error = (multiply(x, quantize(matrix)) - exact).abs() / exact.abs().amax(1, keepdim=True)
    assert 0 < error.max() < 0.02
    total = torch.ones(5, 48)
    add_product(total, x, quantize(matrix))
    assert torch.equal(total, 1 + multiply(x, quantize(matrix)))


@needs_kernels
def test_a_token_comes_out_the_same_in_every_company() -> None:
    torch.manual_seed(1)
    matrix, x = quantize(torch.randn(64, 48)), torch.randn(9, 64)
    x[3] *= 1000  # another token's size must not matter
    x[4], x[5] = 0.0, torch.nan
    actual = multiply(x, matrix)
    alone = torch.cat([multiply(row.unsqueeze(0), matrix) for row in x])
    torch.testing.assert_close(actual, alone, atol=0, rtol=0, equal_nan=True)
    assert torch.equal(actual[4], torch.zeros(48))
    assert bool(actual[5].isnan().all())


def test_where_there_are_no_kernels_it_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("mars_runtime.model.build.can_quantize", lambda: False)
    with pytest.raises(CheckpointError, match="x86"):
        load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu", dtype="int8")


def matrix(rows: int, bits: int, seed: int = 0, columns: int = 64) -> GroupedMatrix:
    generator = torch.Generator().manual_seed(seed)
    return GroupedMatrix.quantize(torch.randn(rows, columns, generator=generator), bits)


def test_an_entry_is_its_number_times_the_scale_plus_the_minimum_of_its_group() -> None:
    values = torch.zeros(2, 64, dtype=torch.uint8)
    values[0, 31], values[0, 32], values[1, 63] = 3, 5, 15
    scales = torch.tensor([[2.0, 10.0], [1.0, 0.5]])
    minimums = torch.tensor([[-1.0, 0.0], [4.0, -7.5]])
    dense = GroupedMatrix(values, scales, minimums, 4).dense()
    assert dense[0, 30:34].tolist() == [-1.0, 5.0, 50.0, 0.0]
    assert (dense[1, 0], dense[1, 63]) == (4.0, 0.0)
    signed = GroupedMatrix((values.int() - 4).to(torch.int8), scales, None, 8).dense()
    assert signed[0, 30:34].tolist() == [-8.0, -2.0, 10.0, -40.0]


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_and_cat_are_those_of_the_dense_matrix(bits: int) -> None:
    first, other = matrix(5, bits), matrix(3, bits, seed=1)
    index = torch.tensor([4, 0, 0])
    assert torch.equal(first.rows(index).dense(), first.dense()[index])
    both = GroupedMatrix.cat([first, other])
    assert both.shape == (8, 64)
    assert torch.equal(both.dense(), torch.cat([first.dense(), other.dense()]))


@pytest.mark.parametrize(("bits", "kind"), [(4, Kind.Q4_1), (8, Kind.Q8_0)])
@given(seed=st.integers(0, 2**16), shift=st.sampled_from([0.0, 3.0, -50.0]))
def test_quantizing_is_as_near_as_its_steps_allow(bits, kind, seed, shift) -> None:
    dense = torch.randn(4, 96, generator=torch.Generator().manual_seed(seed)) + shift
    ours = GroupedMatrix.quantize(dense, bits)
    step = ours.scales.repeat_interleave(32, 1)
    assert ((ours.dense() - dense).abs() <= 0.501 * step + 1e-5 * dense.abs()).all()
    # GGUF keeps scales in fp16, and is no finer than that: its own errors reach half of our steps.
    groups = dense.view(4, -1, 32)
    spread = groups.amax(-1) - groups.amin(-1) if bits == 4 else 2 * groups.abs().amax(-1)
    assert torch.allclose(ours.scales, spread / (2**bits - 1 if bits == 4 else 254), rtol=1e-4)
    theirs = torch.from_numpy(dequantize(gguf_quantize(dense.numpy(), kind), kind))
    assert ((theirs - ours.dense()).abs() <= 1.01 * step + 1e-3 * dense.abs()).all()


def test_only_scales_and_minimums_can_be_no_numbers() -> None:
    good = matrix(2, 4)
    assert good.is_finite()
    for bad in (float("nan"), float("inf")):
        wrong = good.scales.clone()
        wrong[1, 1] = bad
        assert not GroupedMatrix(good.values, wrong, good.minimums, 4).is_finite()
        assert not GroupedMatrix(good.values, good.scales, wrong, 4).is_finite()


def test_parts_that_do_not_fit_are_refused() -> None:
    good = matrix(2, 4)
    with pytest.raises(ValueError, match="same number of bits"):
        GroupedMatrix.cat([good, matrix(2, 8)])
    with pytest.raises(ValueError, match="bits"):
        GroupedMatrix(good.values, good.scales, None, 8)
    for scales in (good.scales[:, :1], good.scales.double()):
        with pytest.raises(ValueError, match=r"scales or minimums .* for a matrix of 2 x 64"):
            GroupedMatrix(good.values, scales, None, 4)
