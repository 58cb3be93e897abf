"""Matrices of whole numbers for a CPU: weights in 8 bits, and what they multiply in 8 bits too.

A quarter of the bytes to read, which is what a small forward waits for. Each weight column and each
token has a scale of its own, so a product is the same to the last bit in whatever forward a token
is met. It is not the arithmetic of fp32: answers may differ. Nor is lossless decoding exact in it:
attention differs in the last digits between forwards of one and of several tokens, and where that
moves an entry across a rounding here, it is no longer a last digit. Almost every answer equals that
of AR in 8 bits; say how many when you report one. Knows tensors alone.

Built on the fbgemm kernels of PyTorch, which exist on x86 only.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ENGINE = "fbgemm"
TINY = 1e-30  # in place of the largest entry of a token that is all zeros
_OPS: Any = torch.ops.quantized  # typed as a namespace without members


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """[in, out] as ``weight``, int8 [out, in], times a scale for each output.

    packed: the same, laid out for the kernel. step, zero: how inputs of -1 to 1 become whole.
    """

    weight: Tensor
    packed: Any
    step: float
    zero: int


def can_quantize() -> bool:
    """Whether this PyTorch on this machine has the kernels."""
    return ENGINE in torch.backends.quantized.supported_engines


def quantize(matrix: Tensor) -> Int8Matrix:
    """An fp32 matrix [in, out] with 8 bits an entry, each output scaled to its largest."""
    turned = matrix.t().contiguous()
    scales = turned.abs().amax(1).clamp_min_(TINY) / 127
    weight = (turned / scales.unsqueeze(1)).round_().to(torch.int8)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the only way to the kernels is marked as old
            zeros = torch.zeros(len(scales), dtype=torch.long)
            make: Any = torch._make_per_channel_quantized_tensor
            packed = _OPS.linear_prepack(make(weight, scales.double(), zeros, 0), None)
    finally:
        torch.backends.quantized.engine = before
    # Without VNNI two products are added in 16 bits: 7 bits an input leave room for the sum.
    half = 127 if torch.cpu._is_vnni_supported() else 63
    return Int8Matrix(weight, packed, 1 / half, half + 1)


def multiply(x: Tensor, matrix: Int8Matrix) -> Tensor:
    """x @ matrix for fp32 x [N, in], each row of x scaled to its largest entry."""
    largest = torch.linalg.vector_norm(x, math.inf, -1, keepdim=True).clamp_min_(TINY)
    whole = _OPS.linear_with_input_q_dq_qweight_dq_output_fp32
    product: Tensor = whole(x.div(largest), matrix.step, matrix.zero, matrix.packed)
    return product.mul_(largest)


def add_product(total: Tensor, x: Tensor, matrix: Int8Matrix) -> Tensor:
    """total += x @ matrix, in place."""
    return total.add_(multiply(x, matrix))
