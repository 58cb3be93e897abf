"""Integer matrices in the two forms that forwards here multiply with.

``GroupedMatrix``: columns share scales in groups of 32, as in GGUF files; used by the native
forward. ``Int8Matrix``: 8-bit weights for PyTorch's own kernels, if there is no native forward;
their inputs are quantised to 8 bits as well.

The latter needs a quarter of the memory traffic, which limits a small forward. Each weight column
and each token has its own scale, so a token's product is bitwise the same in any forward. The
arithmetic differs from fp32, so answers may differ. Lossless decoding is not exact with it either:
attention differs in the last digits between forwards of one and of several tokens, and where that
moves an entry across a rounding boundary here, the difference grows. Almost every answer equals
that of AR in 8 bits; a report should state how many. Uses the fbgemm kernels of PyTorch, which
exist on x86 only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GROUP = 32
TINY = 1e-30  # replaces a scale if all entries are equal or zero
ENGINE = "fbgemm"
_OPS: Any = torch.ops.quantized  # typed as a namespace without members


@dataclass(frozen=True, slots=True, eq=False)
class GroupedMatrix:
    """w = scales * values + minimums, [out, in], with a scale and a minimum per 32 entries of a
    row.

    values: [out, in], uint8 of 0 to 15 if ``bits`` is 4, int8 if it is 8. scales, minimums: fp32
    [out, in/32]; None means that all minimums are zero. Raises ValueError if they don't fit.
    """

    values: Tensor
    scales: Tensor
    minimums: Tensor | None
    bits: int

    def __post_init__(self) -> None:
        kinds = {4: torch.uint8, 8: torch.int8}
        if self.bits not in kinds or self.values.dtype != kinds[self.bits]:
            raise ValueError(f"{self.values.dtype} does not hold whole numbers of {self.bits} bits")
        rows, columns = self.values.shape
        parts = [self.scales] if self.minimums is None else [self.scales, self.minimums]
        for part in parts:
            if part.shape != (rows, columns / GROUP) or part.dtype != torch.float32:
                raise ValueError(f"{tuple(part.shape)} scales for a matrix of {rows} x {columns}")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape, (out, in)."""
        return self.values.shape[0], self.values.shape[1]

    def dense(self) -> Tensor:
        """Return fp32 [out, in]: the rounded product, then the sum, as in GGUF's reference."""
        rows, columns = self.shape
        grouped = self.values.view(rows, -1, GROUP) * self.scales.unsqueeze(2)
        if self.minimums is not None:
            grouped += self.minimums.unsqueeze(2)
        return grouped.view(rows, columns)

    def rows(self, index: Tensor) -> GroupedMatrix:
        """Return the rows at ``index``, int64 [n]; ``rows(ids).dense()`` embeds ids."""
        minimums = None if self.minimums is None else self.minimums.index_select(0, index)
        values, scales = self.values.index_select(0, index), self.scales.index_select(0, index)
        return GroupedMatrix(values, scales, minimums, self.bits)

    def ordered(self, order: Tensor) -> GroupedMatrix:
        """Return all rows in another order."""
        return self.rows(order)

    def is_finite(self) -> bool:
        """Return whether every entry is finite."""
        minimums = self.scales if self.minimums is None else self.minimums
        return bool(self.scales.isfinite().all() and minimums.isfinite().all())

    @classmethod
    def cat(cls, matrices: Sequence[GroupedMatrix]) -> GroupedMatrix:
        """Concatenate matrices by rows. Raises ValueError if their bits differ."""
        bits = {matrix.bits for matrix in matrices}
        if len(bits) != 1:
            raise ValueError("matrices of unlike bits can't be one")
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
        """Return the nearest matrix to ``dense``, [out, in] with in a multiple of 32.

        4 bits cover a group's minimum to its maximum (Q4_1); 8 bits cover minus its largest
        absolute value to its largest (Q8_0).
        """
        grouped = dense.float().view(len(dense), -1, GROUP)
        if bits == 8:
            scales = (grouped.abs().amax(2) / 127).clamp_min(TINY)
            values = (grouped / scales.unsqueeze(2)).round_().to(torch.int8)
            return cls(values.flatten(1), scales, None, bits)
        minimums, largest = grouped.aminmax(dim=2)
        scales = ((largest - minimums) / 15).clamp_min(TINY)
        whole = (grouped - minimums.unsqueeze(2)).div_(scales.unsqueeze(2)).round_()
        return cls(whole.clamp_(0, 15).to(torch.uint8).flatten(1), scales, minimums, bits)


Weight = Tensor | GroupedMatrix


def dense_weights(weights: Mapping[str, Weight]) -> dict[str, Tensor]:
    """Return every weight as a plain tensor."""
    return {
        name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
        for name, weight in weights.items()
    }


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """A matrix [in, out], stored as ``weight``, int8 [out, in], with a scale per output.

    packed: the matrix and its scales in the layout of the kernel. step, zero: quantisation of
    inputs from -1 to 1.
    """

    weight: Tensor
    packed: Any
    step: float
    zero: int


def can_quantize() -> bool:
    """Return whether PyTorch has the kernels on this machine."""
    return ENGINE in torch.backends.quantized.supported_engines


def quantize(matrix: Tensor) -> Int8Matrix:
    """Quantise an fp32 matrix [in, out] to 8 bits, each output scaled by its largest entry."""
    turned = matrix.t().contiguous()
    scales = turned.abs().amax(1).clamp_min_(TINY) / 127
    weight = (turned / scales.unsqueeze(1)).round_().to(torch.int8)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the only interface to the kernels is deprecated
            zeros = torch.zeros(len(scales), dtype=torch.long)
            make: Any = torch._make_per_channel_quantized_tensor
            packed = _OPS.linear_prepack(make(weight, scales.double(), zeros, 0), None)
    finally:
        torch.backends.quantized.engine = before
    # Without VNNI two products are added in 16 bits: inputs of 7 bits leave room for the sum.
    half = 127 if torch.cpu._is_vnni_supported() else 63
    return Int8Matrix(weight, packed, 1 / half, half + 1)


def multiply(x: Tensor, matrix: Int8Matrix) -> Tensor:
    """Return x @ matrix for fp32 x [N, in], each row of x scaled by its largest entry."""
    largest = torch.linalg.vector_norm(x, math.inf, -1, keepdim=True).clamp_min_(TINY)
    whole = _OPS.linear_with_input_q_dq_qweight_dq_output_fp32
    product: Tensor = whole(x.div(largest), matrix.step, matrix.zero, matrix.packed)
    return product.mul_(largest)


def add_product(total: Tensor, x: Tensor, matrix: Int8Matrix) -> Tensor:
    """Add x @ matrix to ``total``, in place."""
    return total.add_(multiply(x, matrix))
