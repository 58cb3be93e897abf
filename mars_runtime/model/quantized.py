"""Quantised matrices with one scale for 32 weights, as in GGUF files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP_SIZE = 32
MIN_SCALE = 1e-30  # minimum scale, so that a group of equal entries is not divided by zero


@dataclass(frozen=True, slots=True, eq=False)
class GroupedMatrix:
    """scales * values + minimums, [out, in]. values: uint8 from 0 to 15 for 4 bits, int8 for 8
    bits. scales, minimums: fp32 [out, in/32].
    """

    values: Tensor
    scales: Tensor
    minimums: Tensor | None
    bits: int

    def __post_init__(self) -> None:
        rows, columns = self.values.shape
        scales = [part for part in (self.scales, self.minimums) if part is not None]
        kinds = {(part.dtype, *part.shape) for part in scales}
        dtype = {4: torch.uint8, 8: torch.int8}.get(self.bits)
        if self.values.dtype != dtype or kinds != {(torch.float32, rows, columns / GROUP_SIZE)}:
            raise ValueError(
                f"values of {self.values.dtype} {rows} x {columns} with {self.bits} bits and "
                f"scales and minimums {sorted(map(str, kinds))} do not fit"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def dense(self) -> Tensor:
        """Rounded after each operation as in GGUF's reference code."""
        rows, columns = self.shape
        grouped = self.values.view(rows, -1, GROUP_SIZE) * self.scales.unsqueeze(2)
        if self.minimums is not None:
            grouped += self.minimums.unsqueeze(2)
        return grouped.view(rows, columns)

    def rows(self, index: Tensor | slice) -> GroupedMatrix:
        minimums = None if self.minimums is None else self.minimums[index]
        return GroupedMatrix(self.values[index], self.scales[index], minimums, self.bits)

    def isfinite(self) -> Tensor:
        minimums = self.scales if self.minimums is None else self.minimums
        return self.scales.isfinite() & minimums.isfinite()

    @classmethod
    def cat(cls, matrices: Sequence[GroupedMatrix]) -> GroupedMatrix:
        """Raises ValueError if ``bits`` differ."""
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
        """[out, in], where in is a multiple of 32: with 4 bits from the minimum to the maximum of a
        group, as in Q4_1, with 8 bits symmetrically, as in Q8_0.
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
