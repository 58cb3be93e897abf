"""The weights of a checkpoint as the native forward wants them: quantised, fused, packed.

The layout is that of ``product.h``: tiles of 16 outputs, groups of 32 inputs, scales beside them.
Scales and minimums are rounded to fp16, which is what GGUF files hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.cache import huge_memory
from mars_runtime.model.adapter import Adapter, Update
from mars_runtime.model.config import ModelConfig, take
from mars_runtime.model.quantized import GROUP, GroupedMatrix, Weight

LOW_BITS = 4  # of an adapter's matrices


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. ``low``: a and b of each part that an adapter updates."""

    attention_norm: Tensor
    qkv: GroupedMatrix
    qkv_bias: Tensor | None
    output: GroupedMatrix
    feed_norm: Tensor
    gate_up: GroupedMatrix
    down: GroupedMatrix
    low: Mapping[str, tuple[GroupedMatrix, GroupedMatrix]]

    def base(self) -> tuple[GroupedMatrix, ...]:
        """Those that every token is multiplied with."""
        return self.qkv, self.output, self.gate_up, self.down

    def matrices(self) -> Iterator[GroupedMatrix]:
        """In the order in which a forward reads them."""
        named = {"qkv": self.qkv, "o": self.output, "gate_up": self.gate_up, "down": self.down}
        for part, matrix in named.items():
            yield matrix
            yield from self.low.get(part, ())


class Weights:
    """All weights of a checkpoint, the matrices of its layers in ``bits``. None: those that are
    quantised stay as they are, others get 8, as tables of embeddings and heads always do. Raises
    CheckpointError when a weight is missing or of another shape than it should be."""

    def __init__(
        self,
        config: ModelConfig,
        given: Mapping[str, Weight],
        bits: int | None,
        adapter: Adapter | None = None,
    ) -> None:
        self._config, self._given, self._bits = config, given, bits
        self.embedding = self._matrix("model.embed_tokens.weight", 8)
        is_tied = config.tie_word_embeddings
        self.head = self.embedding if is_tied else self._matrix("lm_head.weight", 8)
        self.final_norm = self._plain("model.norm.weight")
        updates = adapter.layers if adapter else [{}] * config.num_layers
        self.layers = [self._layer(i, updates[i]) for i in range(config.num_layers)]

    def matrices(self) -> Iterator[GroupedMatrix]:
        """In the order in which a forward reads them."""
        for layer in self.layers:
            yield from layer.matrices()
        yield self.head
        if self.embedding is not self.head:
            yield self.embedding

    def _layer(self, index: int, updates: Mapping[str, Update]) -> LayerWeights:
        config, prefix = self._config, f"model.layers.{index}."
        attention, feed = f"{prefix}self_attn.", f"{prefix}mlp."
        bias = None
        if config.attention_bias:
            bias = torch.cat([self._plain(f"{attention}{name}_proj.bias") for name in "qkv"])
        order = feed_order(config.intermediate_size)
        gate_up = self._joined([f"{feed}{name}_proj.weight" for name in ("gate", "up")])
        return LayerWeights(
            attention_norm=self._plain(f"{prefix}input_layernorm.weight"),
            qkv=self._joined([f"{attention}{name}_proj.weight" for name in "qkv"]),
            qkv_bias=bias,
            output=self._matrix(f"{attention}o_proj.weight"),
            feed_norm=self._plain(f"{prefix}post_attention_layernorm.weight"),
            gate_up=gate_up.rows(order),
            down=self._matrix(f"{feed}down_proj.weight"),
            low={part: _low_rank(part, update, order) for part, update in updates.items()},
        )

    def _joined(self, names: list[str]) -> GroupedMatrix:
        matrices = [self._matrix(name) for name in names]
        if len({matrix.bits for matrix in matrices}) > 1:
            return GroupedMatrix.quantize(torch.cat([one.dense() for one in matrices]), 8)
        return GroupedMatrix.cat(matrices)

    def _matrix(self, name: str, bits: int | None = None) -> GroupedMatrix:
        """``bits``: of this matrix, whatever is asked of all, if it is not quantised yet."""
        weight: Weight = take(self._given, name, self._config)
        asked = self._bits
        if isinstance(weight, Tensor):
            return GroupedMatrix.quantize(weight.float(), bits or asked or 8)
        is_odd = weight.bits == 8 and weight.minimums is not None
        if is_odd or (asked not in (None, weight.bits) and bits is None):
            return GroupedMatrix.quantize(weight.dense(), bits or asked or 8)
        return weight

    def _plain(self, name: str) -> Tensor:
        weight: Weight = take(self._given, name, self._config)
        dense = weight if isinstance(weight, Tensor) else weight.dense()
        return dense.float().contiguous()


def feed_order(size: int) -> Tensor:
    """Rows of gate and up so that 32 of the one stand before the 32 of the other that they
    multiply."""
    return torch.arange(2 * size).view(2, -1, GROUP).transpose(0, 1).flatten()


def _low_rank(part: str, update: Update, order: Tensor) -> tuple[GroupedMatrix, GroupedMatrix]:
    a, b = update.a.float(), update.b.float()
    if part == "gate_up":
        b = b[order]
    b = F.pad(b, (0, -len(a) % GROUP))
    return GroupedMatrix.quantize(a, LOW_BITS), GroupedMatrix.quantize(b, LOW_BITS)


TILE = 16


class Arena:
    """Memory for all matrices, one behind the other."""

    def __init__(self, num_bytes: int) -> None:
        self._whole = huge_memory(num_bytes)
        self._used = 0

    def put(self, packed: Tensor) -> Tensor:
        """A copy of ``packed`` behind what is there already."""
        place = self._whole[self._used : self._used + packed.numel()]
        place.copy_(packed)
        self._used += packed.numel()
        return place


def packed_bytes(matrix: GroupedMatrix) -> int:
    """Bytes that ``pack`` makes of a matrix."""
    outs, ins = matrix.shape
    return -(-outs // TILE) * (ins // GROUP) * (320 if matrix.bits == 4 else 544)


def pack(matrix: GroupedMatrix) -> Tensor:
    """uint8 [tiles, groups, bytes of a group]."""
    outs, ins = matrix.shape
    padding = -outs % TILE
    values = F.pad(matrix.values, (0, 0, 0, padding))
    tiles = values.view(-1, TILE, ins // GROUP, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    parts = [matrix.scales]
    if matrix.bits == 4:
        numbers = tiles[:, :, :4] | (tiles[:, :, 4:] << 4)
        none = torch.zeros_like(matrix.scales)
        parts.append(none if matrix.minimums is None else matrix.minimums)
    else:
        numbers = (tiles.to(torch.int16) + 128).to(torch.uint8)
    columns = [numbers.flatten(2)]
    for part in parts:
        halves = F.pad(part, (0, 0, 0, padding)).view(-1, TILE, ins // GROUP).transpose(1, 2)
        columns.append(halves.to(torch.float16).contiguous().view(torch.uint8))
    return torch.cat(columns, 2)
