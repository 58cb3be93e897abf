"""Integer matrices: ``GroupedMatrix`` for the native forward pass, with a scale for 32 weights as
in GGUF files; ``Int8Matrix`` for PyTorch's fbgemm kernels (x86 only) if there is none.

With ``Int8Matrix`` a product does not depend on other tokens, but attention over one token and over
several differs in the last bits, and rounding amplifies this: few lossless answers differ from AR.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GROUP_SIZE = 32
MIN_SCALE = 1e-30  # minimum scale, so that a group of equal entries is not divided by zero
ENGINE = "fbgemm"
_OPS: Any = torch.ops.quantized  # Any, because PyTorch's types do not list these operators


@dataclass(frozen=True, slots=True, eq=False)
class GroupedMatrix:
    """scales * values + minimums, [out, in], with one scale per 32 entries of a row.

    values: uint8 from 0 to 15 for 4 bits, int8 for 8 bits. scales, minimums: fp32 [out, in/32].
    Raises ValueError if shapes or dtypes do not fit.
    """

    values: Tensor
    scales: Tensor
    minimums: Tensor | None
    bits: int

    def __post_init__(self) -> None:
        dtypes = {4: torch.uint8, 8: torch.int8}
        if self.bits not in dtypes or self.values.dtype != dtypes[self.bits]:
            raise ValueError(
                f"values must be uint8 for 4 bits or int8 for 8 bits, got {self.values.dtype} for "
                f"{self.bits} bits"
            )
        rows, columns = self.values.shape
        parts = [self.scales] if self.minimums is None else [self.scales, self.minimums]
        for part in parts:
            if part.shape != (rows, columns / GROUP_SIZE) or part.dtype != torch.float32:
                raise ValueError(
                    f"got scales or minimums of {part.dtype} {tuple(part.shape)} for a matrix of "
                    f"{rows} x {columns}, which needs float32 ({rows}, {columns / GROUP_SIZE:g})"
                )

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def dense(self) -> Tensor:
        """Return fp32, rounded after each operation as GGUF's reference code does."""
        rows, columns = self.shape
        grouped = self.values.view(rows, -1, GROUP_SIZE) * self.scales.unsqueeze(2)
        if self.minimums is not None:
            grouped += self.minimums.unsqueeze(2)
        return grouped.view(rows, columns)

    def rows(self, index: Tensor) -> GroupedMatrix:
        minimums = None if self.minimums is None else self.minimums.index_select(0, index)
        values, scales = self.values.index_select(0, index), self.scales.index_select(0, index)
        return GroupedMatrix(values, scales, minimums, self.bits)

    def ordered(self, order: Tensor) -> GroupedMatrix:
        return self.rows(order)

    def is_finite(self) -> bool:
        minimums = self.scales if self.minimums is None else self.minimums
        return bool(self.scales.isfinite().all() and minimums.isfinite().all())

    @classmethod
    def cat(cls, matrices: Sequence[GroupedMatrix]) -> GroupedMatrix:
        """Concatenate rows. Raises ValueError if ``bits`` differ."""
        bits = {matrix.bits for matrix in matrices}
        if len(bits) != 1:
            raise ValueError(
                f"matrices to concatenate must have the same number of bits, got {sorted(bits)}"
            )
        minimums = None
        if any(matrix.minimums is not None for matrix in matrices):
            minimums = torch.cat(
                [
                    torch.zeros_like(matrix.scales) if matrix.minimums is None else matrix.minimums
                    for matrix in matrices
                ]
            )
        values = torch.cat([matrix.values for matrix in matrices])
        return cls(values, torch.cat([matrix.scales for matrix in matrices]), minimums, bits.pop())

    @classmethod
    def quantize(cls, dense: Tensor, bits: int) -> GroupedMatrix:
        """Quantise [out, in], where in is a multiple of 32: with 4 bits from the minimum to the
        maximum of a group, as in Q4_1, with 8 bits symmetrically, as in Q8_0.
        """
        grouped = dense.float().view(len(dense), -1, GROUP_SIZE)
        if bits == 8:
            scales = (grouped.abs().amax(2) / 127).clamp_min(MIN_SCALE)
            values = (grouped / scales.unsqueeze(2)).round_().to(torch.int8)
            return cls(values.flatten(1), scales, None, bits)
        minimums, largest = grouped.aminmax(dim=2)
        scales = ((largest - minimums) / 15).clamp_min(MIN_SCALE)
        integers = (grouped - minimums.unsqueeze(2)).div_(scales.unsqueeze(2)).round_()
        return cls(integers.clamp_(0, 15).to(torch.uint8).flatten(1), scales, minimums, bits)


Weight = Tensor | GroupedMatrix


def dense_weights(weights: Mapping[str, Weight]) -> dict[str, Tensor]:
    return {
        name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
        for name, weight in weights.items()
    }


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """weight: int8 [out, in]. step, zero: scale and zero point for inputs from -1 to 1."""

    weight: Tensor
    packed: Any
    step: float
    zero: int


def can_quantize() -> bool:
    return ENGINE in torch.backends.quantized.supported_engines


def quantize(matrix: Tensor) -> Int8Matrix:
    """Quantise an fp32 matrix [in, out], each output scaled by its largest entry."""
    transposed = matrix.t().contiguous()
    scales = transposed.abs().amax(1).clamp_min_(MIN_SCALE) / 127
    weight = (transposed / scales.unsqueeze(1)).round_().to(torch.int8)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            # Deprecation warnings are ignored, because there is no other interface to the kernels.
            warnings.simplefilter("ignore")
            zeros = torch.zeros(len(scales), dtype=torch.long)
            make: Any = torch._make_per_channel_quantized_tensor
            packed = _OPS.linear_prepack(make(weight, scales.double(), zeros, 0), None)
    finally:
        torch.backends.quantized.engine = before
    # Without VNNI the kernel adds two products in 16 bits. Inputs of 7 bits keep that sum in range.
    half = 127 if torch.cpu._is_vnni_supported() else 63
    return Int8Matrix(weight, packed, 1 / half, half + 1)


def multiply(x: Tensor, matrix: Int8Matrix) -> Tensor:
    """Return x @ matrix for fp32 x [N, in], each row of x scaled by its largest entry."""
    largest = torch.linalg.vector_norm(x, math.inf, -1, keepdim=True).clamp_min_(MIN_SCALE)
    linear = _OPS.linear_with_input_q_dq_qweight_dq_output_fp32
    product: Tensor = linear(x.div(largest), matrix.step, matrix.zero, matrix.packed)
    return product.mul_(largest)


def add_product(total: Tensor, x: Tensor, matrix: Int8Matrix) -> Tensor:
    return total.add_(multiply(x, matrix))
