"""Matrices of whole numbers whose columns share scales by groups of 32, as GGUF files hold them.

Knows tensors alone: nothing of files, and nothing of how a product with one is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32
TINY = 1e-30  # in place of the scale of a group whose entries are all equal


@dataclass(frozen=True, slots=True, eq=False)
class GroupedMatrix:
    """w = scales * values + minimums, [out, in], a scale and a minimum for each 32 of a row.

    values: [out, in], uint8 of 0 to 15 where ``bits`` is 4, int8 where it is 8. scales and
    minimums: fp32 [out, in/32]; no minimums: all zero. Raises ValueError when they don't fit.
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
        """(out, in)"""
        return self.values.shape[0], self.values.shape[1]

    def dense(self) -> Tensor:
        """fp32 [out, in]: the product rounded, then the sum, as GGUF's own reference does."""
        rows, columns = self.shape
        grouped = self.values.view(rows, -1, GROUP) * self.scales.unsqueeze(2)
        if self.minimums is not None:
            grouped += self.minimums.unsqueeze(2)
        return grouped.view(rows, columns)

    def rows(self, index: Tensor) -> GroupedMatrix:
        """The rows at ``index``, int64 [n]; ``rows(ids).dense()`` embeds."""
        minimums = None if self.minimums is None else self.minimums.index_select(0, index)
        values, scales = self.values.index_select(0, index), self.scales.index_select(0, index)
        return GroupedMatrix(values, scales, minimums, self.bits)

    def is_finite(self) -> bool:
        """Whether every entry is a number; whole numbers always are."""
        minimums = self.scales if self.minimums is None else self.minimums
        return bool(self.scales.isfinite().all() and minimums.isfinite().all())

    @classmethod
    def cat(cls, matrices: Sequence[GroupedMatrix]) -> GroupedMatrix:
        """The rows of all, one matrix after the other. Raises ValueError for unlike kinds."""
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
        """The nearest matrix to ``dense``, [out, in] with in a multiple of 32.

        4 bits from the smallest of a group to the largest (Q4_1); 8 bits from minus its largest to
        its largest (Q8_0).
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
