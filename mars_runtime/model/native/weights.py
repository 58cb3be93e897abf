"""Prepare a checkpoint's weights for the native forward pass: quantise, fuse and pack them.

``product.h`` describes the layout. Layers are packed one by one, so only one unpacked layer is in
memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.cache import huge_memory
from mars_runtime.model.adapter import Adapter, Update
from mars_runtime.model.config import (
    CheckpointError,
    ModelConfig,
    checked_weight,
    expected_names,
    expected_shape,
)
from mars_runtime.model.quantized import GROUP_SIZE, GroupedMatrix, Weight

LOW_BITS = 4  # number of bits per weight in an adapter's matrices
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The dtypes that the library can quantise, with their numbers in ``Kind`` of ``quantise.h``."""


def not_finite(name: str) -> CheckpointError:
    return CheckpointError(f"The weight {name} is not finite: fetch the checkpoint again.")


@dataclass(frozen=True, slots=True, eq=False)
class DenseRows:
    """Dense weights [out, in], quantised to ``bits`` when they are packed. parts: weights whose
    rows are concatenated. order: int64 [out], of the packed rows. name: for error messages.
    """

    parts: tuple[Tensor, ...]
    bits: int
    name: str
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return sum(len(part) for part in self.parts), self.parts[0].shape[1]

    def rows(self, index: Tensor) -> GroupedMatrix:
        """The matrix must have a single part."""
        (part,) = self.parts
        return GroupedMatrix.quantize(part.index_select(0, index), self.bits)

    def ordered(self, order: Tensor) -> DenseRows:
        return replace(self, order=order)

    def pack_into(self, target: Tensor, library: Any) -> None:
        """Raises CheckpointError for weights that are not finite."""
        parts = [_readable(part) for part in self.parts]
        starts = [
            torch.arange(len(part)) * part.stride(0) * part.element_size() + part.data_ptr()
            for part in parts
        ]
        addresses = torch.cat(starts)
        if self.order is not None:
            addresses = addresses[self.order]
        failed = library.mars_quantise(
            addresses.data_ptr(),
            KINDS[parts[0].dtype],
            self.bits,
            *self.shape,
            torch.get_num_threads(),
            target.data_ptr(),
        )
        if failed:
            raise not_finite(self.name)


Matrix = GroupedMatrix | DenseRows


def _readable(part: Tensor) -> Tensor:
    return (part if part.dtype in KINDS else part.float()).contiguous()


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """head_norms: of query and key heads, or empty. low: the matrices a and b of an adapter, by
    part.
    """

    attention_norm: Tensor
    qkv: Matrix
    qkv_bias: Tensor | None
    head_norms: Sequence[Tensor]
    output: Matrix
    feed_norm: Tensor
    gate_up: Matrix
    down: Matrix
    low: Mapping[str, tuple[GroupedMatrix, GroupedMatrix]]

    def base(self) -> tuple[Matrix, ...]:
        return self.qkv, self.output, self.gate_up, self.down


class Weights:
    """Those of a layer are read when they are accessed. Raises CheckpointError.

    bits: of the layer matrices. None leaves quantised matrices unchanged and uses 8 for dense ones.
    Dense embeddings and output heads always use 8.
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
        """Yield one by one, so that the caller can free a layer before reading the next."""
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
            gate_up=gate_up.ordered(order),
            down=self._matrix(f"{feed}down_proj.weight"),
            low={part: _low_rank(part, update, order) for part, update in updates.items()},
        )

    def _joined(self, names: list[str]) -> Matrix:
        matrices = [self._matrix(name) for name in names]
        dense = [matrix for matrix in matrices if isinstance(matrix, DenseRows)]
        if len(dense) == len(names) and len({matrix.parts[0].dtype for matrix in dense}) == 1:
            return replace(dense[0], parts=tuple(matrix.parts[0] for matrix in dense))
        grouped = [_grouped(matrix) for matrix in matrices]
        if len({matrix.bits for matrix in grouped}) > 1:
            return GroupedMatrix.quantize(torch.cat([matrix.dense() for matrix in grouped]), 8)
        return GroupedMatrix.cat(grouped)

    def _matrix(self, name: str, bits: int | None = None) -> Matrix:
        """bits: None for a weight of a layer; else those to use if the weight is dense."""
        weight: Weight = checked_weight(self._source, name, self._config)
        common = self._bits
        if isinstance(weight, Tensor):
            return DenseRows((weight,), bits or common or 8, name)
        if not weight.is_finite():
            raise not_finite(name)
        is_odd = weight.bits == 8 and weight.minimums is not None
        if is_odd or (common not in (None, weight.bits) and bits is None):
            return GroupedMatrix.quantize(weight.dense(), bits or common or 8)
        return weight

    def _plain(self, name: str) -> Tensor:
        weight: Weight = checked_weight(self._source, name, self._config)
        dense = weight if isinstance(weight, Tensor) else weight.dense()
        if not dense.isfinite().all():
            raise not_finite(name)
        return dense.to(torch.float32, copy=True).contiguous()


def _grouped(matrix: Matrix) -> GroupedMatrix:
    if isinstance(matrix, GroupedMatrix):
        return matrix
    return matrix.rows(torch.arange(len(matrix.parts[0])))


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

    def __init__(self, num_bytes: int, library: Any) -> None:
        self._memory = huge_memory(num_bytes)
        self._used = 0
        self._library = library

    def put(self, matrix: Matrix) -> Tensor:
        """Pack a matrix after the previous ones; return a uint8 view."""
        end = self._used + packed_bytes(matrix)
        view = self._memory[self._used : end]
        self._used = end
        if isinstance(matrix, DenseRows):
            matrix.pack_into(view, self._library)
        else:
            view.copy_(pack(matrix).flatten())
        return view


def bytes_of(outs: int, ins: int, bits: int) -> int:
    return -(-outs // PAIR) * (ins // GROUP_SIZE) * (640 if bits == 4 else 1088)


def packed_bytes(matrix: Matrix) -> int:
    return bytes_of(*matrix.shape, matrix.bits)


def pack(matrix: GroupedMatrix) -> Tensor:
    """Return uint8 [pairs of tiles, groups, 2, bytes per group]."""
    outs, ins = matrix.shape
    padding = -outs % PAIR
    values = F.pad(matrix.values, (0, 0, 0, padding))
    tiles = values.view(-1, TILE, ins // GROUP_SIZE, GROUP_SIZE // 4, 4).permute(0, 2, 3, 1, 4)
    parts = [matrix.scales]
    if matrix.bits == 4:
        numbers = tiles[:, :, :4] | (tiles[:, :, 4:] << 4)
        none = torch.zeros_like(matrix.scales)
        parts.append(none if matrix.minimums is None else matrix.minimums)
    else:
        numbers = (tiles.to(torch.int16) + 128).to(torch.uint8)
    columns = [numbers.flatten(2)]
    for part in parts:
        halves = F.pad(part, (0, 0, 0, padding)).view(-1, TILE, ins // GROUP_SIZE).transpose(1, 2)
        columns.append(halves.to(torch.float16).contiguous().view(torch.uint8))
    blocks = torch.cat(columns, 2)
    return blocks.view(-1, 2, *blocks.shape[1:]).transpose(1, 2).contiguous()
