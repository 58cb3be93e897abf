"""Quantise, fuse and pack a checkpoint's weights. ``product.h`` describes the layout. Only one
unpacked layer is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.cache import huge_memory
from mars_runtime.model.adapter import Adapter, Update
from mars_runtime.model.config import (
    ModelConfig,
    checked_weight,
    expected_names,
    expected_shape,
)
from mars_runtime.model.quantized import GROUP_SIZE, GroupedMatrix, Weight

LOW_BITS = 4  # number of bits per weight in an adapter's matrices
PIECE = 1 << 18  # number of weights to convert at once, so that intermediate results fit a cache


def _quantized(dense: Tensor, bits: int) -> GroupedMatrix:
    pieces = torch.split(dense, _rows_at_once(dense.shape[1]))
    return GroupedMatrix.cat([GroupedMatrix.quantize(piece, bits) for piece in pieces])


def _rows_at_once(width: int) -> int:
    return -(-PIECE // (width * PAIR)) * PAIR


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """head_norms: of query and key heads, or empty. low: the matrices a and b of an adapter."""

    attention_norm: Tensor
    qkv: GroupedMatrix
    qkv_bias: Tensor | None
    head_norms: Sequence[Tensor]
    output: GroupedMatrix
    feed_norm: Tensor
    gate_up: GroupedMatrix
    down: GroupedMatrix
    low: Mapping[str, tuple[GroupedMatrix, GroupedMatrix]]

    def base(self) -> tuple[GroupedMatrix, ...]:
        return self.qkv, self.output, self.gate_up, self.down


class Weights:
    """bits: of the layer matrices. None leaves quantised matrices unchanged and uses 8 for dense
    ones. Dense embeddings and output heads always use 8. Raises CheckpointError.
    """

    def __init__(
        self,
        config: ModelConfig,
        source: Mapping[str, Weight],
        bits: int | None,
        adapter: Adapter | None = None,
    ) -> None:
        self._config, self._source, self._bits = config, source, bits
        self._updates = adapter.layers if adapter else [{}] * config.num_layers
        self.embedding = self._matrix("model.embed_tokens.weight", 8)
        is_tied = config.tie_word_embeddings
        self.head = self.embedding if is_tied else self._matrix("lm_head.weight", 8)
        self.final_norm = self._plain("model.norm.weight")

    @property
    def most_bytes(self) -> int:
        """Upper bound of the size of all packed weights."""
        shapes = [expected_shape(name, self._config) for name in expected_names(self._config)]
        low = [
            update.a.shape + update.b.shape for layer in self._updates for update in layer.values()
        ]
        base = sum(bytes_of(*shape, 8) for shape in shapes if len(shape) == 2)
        return base + sum(
            bytes_of(rank, ins, LOW_BITS) + bytes_of(outs, rank + -rank % GROUP_SIZE, LOW_BITS)
            for rank, ins, outs, _ in low
        )

    def layers(self) -> Iterator[LayerWeights]:
        for index, updates in enumerate(self._updates):
            yield self._layer(index, updates)

    def _layer(self, index: int, updates: Mapping[str, Update]) -> LayerWeights:
        config, prefix = self._config, f"model.layers.{index}."
        attention, feed = f"{prefix}self_attn.", f"{prefix}mlp."
        bias = None
        if config.attention_bias:
            bias = torch.cat([self._plain(f"{attention}{name}_proj.bias") for name in "qkv"])
        norms = [f"{attention}{name}_norm.weight" for name in "qk" if config.qk_norm]
        order = feed_order(config.intermediate_size)
        gate_up = self._joined([f"{feed}{name}_proj.weight" for name in ("gate", "up")])
        return LayerWeights(
            attention_norm=self._plain(f"{prefix}input_layernorm.weight"),
            qkv=self._joined([f"{attention}{name}_proj.weight" for name in "qkv"]),
            qkv_bias=bias,
            head_norms=[self._plain(name) for name in norms],
            output=self._matrix(f"{attention}o_proj.weight"),
            feed_norm=self._plain(f"{prefix}post_attention_layernorm.weight"),
            gate_up=gate_up.rows(order),
            down=self._matrix(f"{feed}down_proj.weight"),
            low={part: _low_rank(part, update, order) for part, update in updates.items()},
        )

    def _joined(self, names: list[str]) -> GroupedMatrix:
        matrices = [self._matrix(name) for name in names]
        if len({matrix.bits for matrix in matrices}) > 1:
            return _quantized(torch.cat([matrix.dense() for matrix in matrices]), 8)
        return GroupedMatrix.cat(matrices)

    def _matrix(self, name: str, bits: int | None = None) -> GroupedMatrix:
        """bits: None for a weight of a layer; else those to use if the weight is dense."""
        weight: Weight = checked_weight(self._source, name, self._config)
        common = self._bits
        if isinstance(weight, GroupedMatrix):
            has_layout = weight.bits == 4 or weight.minimums is None
            if not has_layout or (bits is None and common not in (None, weight.bits)):
                weight = weight.dense()
        if isinstance(weight, Tensor):
            weight = _quantized(weight, bits or common or 8)
        return weight

    def _plain(self, name: str) -> Tensor:
        weight: Weight = checked_weight(self._source, name, self._config)
        dense = weight if isinstance(weight, Tensor) else weight.dense()
        return dense.to(torch.float32, copy=True).contiguous()


def feed_order(size: int) -> Tensor:
    """Gate and up alternate in groups of 32 rows."""
    return torch.arange(2 * size).view(2, -1, GROUP_SIZE).transpose(0, 1).flatten()


def _low_rank(part: str, update: Update, order: Tensor) -> tuple[GroupedMatrix, GroupedMatrix]:
    a, b = update.a.float(), update.b.float()
    if part == "gate_up":
        b = b[order]
    b = F.pad(b, (0, -len(a) % GROUP_SIZE))
    return GroupedMatrix.quantize(a, LOW_BITS), GroupedMatrix.quantize(b, LOW_BITS)


TILE, PAIR = 16, 32
"""Number of outputs of a tile and of a pair of tiles, as in ``product.h``."""


class Arena:
    """One block of memory for all packed matrices. Only pages that are written are allocated."""

    def __init__(self, num_bytes: int) -> None:
        self._memory = huge_memory(num_bytes)
        self._used = 0

    def put(self, matrix: GroupedMatrix) -> Tensor:
        begin, (outs, ins) = self._used, matrix.shape
        rows = _rows_at_once(ins)
        for first in range(0, outs, rows):
            packed = pack(matrix.rows(slice(first, first + rows))).flatten()
            self._memory[self._used : self._used + len(packed)] = packed
            self._used += len(packed)
        return self._memory[begin : self._used]


def bytes_of(outs: int, ins: int, bits: int) -> int:
    return -(-outs // PAIR) * (ins // GROUP_SIZE) * (640 if bits == 4 else 1088)


def packed_bytes(matrix: GroupedMatrix) -> int:
    return bytes_of(*matrix.shape, matrix.bits)


def pack(matrix: GroupedMatrix) -> Tensor:
    """Return uint8 [pairs of tiles, groups, 2, bytes per group]."""
    outs, ins = matrix.shape
    padding, groups = -outs % PAIR, ins // GROUP_SIZE
    values = F.pad(matrix.values, (0, 0, 0, padding)).view(torch.uint8).view(-1, groups, GROUP_SIZE)
    parts = [matrix.scales]
    if matrix.bits == 4:
        numbers = values[:, :, :16] | (values[:, :, 16:] << 4)
        none = torch.zeros_like(matrix.scales)
        parts.append(none if matrix.minimums is None else matrix.minimums)
    else:
        numbers = values ^ 128  # the integers plus 128
    words = numbers.view(torch.int32).view(-1, TILE, groups, numbers.shape[2] // 4)
    columns = [words.permute(0, 2, 3, 1).contiguous().view(torch.uint8).flatten(2)]
    for part in parts:
        halves = F.pad(part, (0, 0, 0, padding)).view(-1, TILE, groups).transpose(1, 2)
        columns.append(halves.to(torch.float16).contiguous().view(torch.uint8))
    blocks = torch.cat(columns, 2)
    return blocks.view(-1, 2, *blocks.shape[1:]).transpose(1, 2).contiguous()
