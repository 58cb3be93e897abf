"""Quantised matrices."""

from __future__ import annotations

import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from gguf.quants import quantize as gguf_quantize
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.model.quantized import GroupedMatrix


def matrix(rows: int, bits: int, seed: int = 0, columns: int = 64) -> GroupedMatrix:
    generator = torch.Generator().manual_seed(seed)
    return GroupedMatrix.quantize(torch.randn(rows, columns, generator=generator), bits)


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


def test_parts_that_do_not_fit_are_refused() -> None:
    good = matrix(2, 4)
    with pytest.raises(ValueError, match="bits"):
        GroupedMatrix.cat([good, matrix(2, 8)])
    for scales, bits in ((good.scales, 8), (good.scales[:, :1], 4), (good.scales.double(), 4)):
        with pytest.raises(ValueError, match="do not fit"):
            GroupedMatrix(good.values, scales, None, bits)
