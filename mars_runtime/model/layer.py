"""What one layer of a model holds. Knows no forward."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mars_runtime.model.quantize import Int8Matrix

Matrix = Tensor | Int8Matrix


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer. Matrices are [in, out]: x @ W."""

    attention_norm: Tensor
    projection: Matrix
    projection_bias: Tensor | None
    output: Matrix
    feed_norm: Tensor
    gate_up: Matrix
    down: Matrix
