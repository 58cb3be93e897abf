"""A forward pass as one call of the compiled library. The result for a token does not depend, to
the last bit, on the other rows and tokens (tests/test_law_bitwise.py).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_bool, c_float, c_int32
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.cache import PackedKVCache
from mars_runtime.errors import DecodeError
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.attention import frequencies
from mars_runtime.model.config import ModelConfig
from mars_runtime.model.forward import Branches, CausalModel, MaskGroup, SamplingMetadata, chosen
from mars_runtime.model.native import library as c
from mars_runtime.model.native.weights import (
    TILE,
    Arena,
    LayerWeights,
    Weights,
    packed_bytes,
)
from mars_runtime.model.predictions import NO_NUMBER, NUM_BEST, Penalty, proposal_of
from mars_runtime.model.quantized import GROUP_SIZE, GroupedMatrix, Weight
from mars_runtime.model.reranker import Tables
from mars_runtime.model.threads import Threads, one_thread
from mars_runtime.runs.events import Proposal

MAX_THREADS = 64


def check_supported(config: ModelConfig) -> None:
    """Raises CompileError."""
    sizes = (config.hidden_size, config.intermediate_size, config.head_dim)
    if any(size % GROUP_SIZE for size in sizes):
        raise c.CompileError(
            f"The native forward pass needs hidden, intermediate and head sizes that are multiples "
            f"of {GROUP_SIZE}, got {', '.join(map(str, sizes))}."
        )


Tell = Callable[[float], None]


class NativeModel(CausalModel):
    """As for ``build_model``; bits: as for ``weights.Weights``. Raises CheckpointError."""

    is_bitwise = True

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Weight],
        library: Any,
        *,
        bits: int | None = None,
        adapter: Adapter | None = None,
        mask_id: int | None = None,
        tell: Tell = lambda share: None,
    ) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.dtype = torch.float32  # dtype of hidden states and logits
        self.cache_dtype = torch.float16
        self.threads: Threads = Threads()
        self.ceiling: int | None = None
        self._library = library
        self._rotations = torch.empty(0, config.head_dim)
        with one_thread():
            self._pack(Weights(config, weights, bits, adapter), adapter, mask_id, tell)
        # The forbidden ids of the latest call: in the caller's order, and in ascending order.
        self._forbidden: tuple[Tensor, Tensor] | None = None

    @property
    def arithmetic(self) -> str:
        bits = " and ".join(f"int{bits}" for bits in self._bits)
        return f"{bits} weights, int8 products"

    @property
    def most_threads(self) -> int:
        return min(self.ceiling or torch.get_num_threads(), MAX_THREADS)

    @property
    def num_threads(self) -> int:
        return self.threads.count(self.most_threads)

    def new_cache(self, rows: int, capacity: int) -> PackedKVCache:
        return PackedKVCache(self.config.cache_shape(rows, capacity))

    def hidden(
        self, tokens: Tensor, cache: PackedKVCache, branches: Branches | None = None
    ) -> Tensor:
        """``branches`` must have no ``ends``. Raises IndexError for unknown token ids."""
        num_rows, num_tokens = tokens.shape
        cursors = cache.cursors[:num_rows]
        end = max(cursors) + num_tokens
        if end > cache.capacity:
            raise ValueError(
                f"the forward pass needs {end} slots, but the cache has {cache.capacity}"
            )
        if len(self._rotations) < cache.capacity:
            self._rotations = _rotations(self.config, cache.capacity)
        ids, store = tokens.contiguous(), cache.store
        layer_stride, row_stride, block_stride = store.stride()[:3]
        out = torch.empty(num_rows, num_tokens, self.config.hidden_size)
        feed = c.FeedStruct(
            num_rows=num_rows,
            num_tokens=num_tokens,
            ids=ids.data_ptr(),
            cursors=(ctypes.c_int64 * num_rows)(*cursors),
            rotations=self._rotations.data_ptr(),
            cache=store.data_ptr(),
            layer_stride=layer_stride,
            row_stride=row_stride,
            block_stride=block_stride,
        )
        if branches is not None:
            parts = [
                part.contiguous() for part in (branches.positions, branches.roots, branches.starts)
            ]
            feed.positions, feed.roots, feed.starts = (part.data_ptr() for part in parts)

        feed.num_threads = self.num_threads
        if self._library.mars_hidden(self._model, ctypes.byref(feed), out.data_ptr()):
            raise IndexError(f"token ids must be between 0 and {self.config.vocab_size - 1}")
        return out

    def logits(self, hidden: Tensor, head: Tensor | slice) -> Tensor:
        states = chosen(hidden, head)
        rows, slots = states.shape[:2]
        out = torch.empty(rows, slots, self.config.vocab_size)
        self._library.mars_logits(
            self._model, self.num_threads, states.data_ptr(), rows * slots, out.data_ptr()
        )
        return out

    def predict(
        self, hidden: Tensor, head: Tensor | slice, sampling: SamplingMetadata
    ) -> list[list[Proposal]]:
        """The logits of greedy rows are never stored, and only masks of such rows are reranked."""
        states = chosen(hidden, head)
        drawing = [row for row, draw in enumerate(sampling.draws) if draw]
        if not drawing:
            return self._greedy(states, sampling)
        predictions: dict[int, list[Proposal]] = {}
        broken: list[int] = []
        greedy = [row for row in range(len(states)) if row not in drawing]
        for rows in filter(None, (greedy, drawing)):
            selected, metadata = states[rows], sampling.of(rows)
            try:
                if rows is greedy:
                    slots = self._greedy(selected, metadata)
                else:
                    slots = metadata.proposals(self.logits(selected, slice(0, selected.shape[1])))
                predictions.update(zip(rows, slots, strict=True))
            except DecodeError as error:
                broken += [rows[index] for index in error.rows]
        if broken:
            raise DecodeError(NO_NUMBER, tuple(sorted(broken)))
        return [predictions[row] for row in range(len(states))]

    def _greedy(self, states: Tensor, sampling: SamplingMetadata) -> list[list[Proposal]]:
        # ctypes arrays, because each operation on a tensor takes microseconds.
        rows, slots = states.shape[:2]
        count = rows * slots
        groups = sampling.groups if self._ranks else ()
        ids, probabilities = (c_int32 * (NUM_BEST * count))(), (c_float * (NUM_BEST * count))()
        entropies = (c_float * count)() if "entropy" in sampling.metrics else None
        is_finite = (c_bool * count)()
        forbidden = self._rising(sampling.forbidden)
        num_forbidden = forbidden.shape[0]  # len() of a tensor is slow
        self._library.mars_predict(
            *(self._model, self.num_threads, states.data_ptr(), count),
            *(num_forbidden, forbidden.data_ptr(), _changes(sampling.penalties, slots)),
            *(len(groups), _numbers(groups, slots)),
            *(ids, probabilities, entropies, is_finite),
        )
        if not all(is_finite):
            broken = {slot // slots for slot, is_good in enumerate(is_finite) if not is_good}
            raise DecodeError(NO_NUMBER, tuple(sorted(broken)))
        max_entropy = math.log(max(self.config.vocab_size - num_forbidden, 2))
        proposals = []
        for slot, first in enumerate(range(0, NUM_BEST * count, NUM_BEST)):
            end = first + NUM_BEST
            ranked = list(zip(ids[first:end], probabilities[first:end], strict=True))
            certainty = 1.0 - entropies[slot] / max_entropy if entropies else 0.0
            metric = sampling.metrics[slot // slots]
            proposals.append(proposal_of(ranked, metric, min(1.0, max(0.0, certainty))))
        return [proposals[row * slots : (row + 1) * slots] for row in range(rows)]

    def _rising(self, forbidden: Tensor) -> Tensor:
        # The forbidden ids nearly always equal those of the previous call.
        known = self._forbidden
        if known is None or not (forbidden is known[0] or torch.equal(forbidden, known[0])):
            known = forbidden, forbidden.sort().values
        self._forbidden = forbidden, known[1]
        return known[1]

    def weights(self) -> Iterator[Tensor]:
        yield from (part for part in self._pinned if isinstance(part, Tensor))

    def _pack(
        self, unpacked: Weights, adapter: Adapter | None, mask_id: int | None, tell: Tell
    ) -> None:
        self._pinned: list[Any] = []  # objects that must live because the library uses their memory
        tables = _tables(unpacked, adapter, self.config)
        state_bytes = packed_bytes(_state(tables)) if tables else 0
        self._arena = Arena(unpacked.most_bytes + state_bytes)
        layers = (c.LayerStruct * self.config.num_layers)()
        bits: set[int] = set()
        for index, layer in enumerate(unpacked.layers()):
            layers[index] = self._layer(layer)
            bits |= {matrix.bits for matrix in layer.base()}
            tell((index + 1) / (self.config.num_layers + 1))
        self._pinned.append(layers)
        self._bits = sorted(bits)
        spec = self._spec(unpacked, layers, adapter, mask_id, tables)
        self._model = self._library.mars_new(ctypes.byref(spec))
        # The model is not freed at exit, because a thread may still be running a forward pass.
        weakref.finalize(self, self._library.mars_free, self._model).atexit = False
        self._ranks = tables is not None

    def _spec(
        self,
        unpacked: Weights,
        layers: Any,
        adapter: Adapter | None,
        mask_id: int | None,
        tables: Tables | None,
    ) -> c.ModelStruct:
        config = self.config
        head = self._matrix(unpacked.head)
        is_tied = unpacked.embedding is unpacked.head
        spec = c.ModelStruct(
            vocab=config.vocab_size,
            hidden=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv=config.num_kv_heads,
            dim=config.head_dim,
            feed=config.intermediate_size,
            norm_floor=config.rms_norm_eps,
            layers=layers,
            final_norm=self._pin(unpacked.final_norm),
            embedding=head if is_tied else self._matrix(unpacked.embedding),
            head=head,
            mask_id=-1 if mask_id is None else mask_id,
        )
        if adapter is not None:
            table = adapter.mask_embedding.float().contiguous()
            spec.mask_embeddings, spec.num_mask_embeddings = self._pin(table), len(table)
        if tables is not None:
            spec.sampler = self._sampler(tables)
        return spec

    def _layer(self, layer: LayerWeights) -> c.LayerStruct:
        low = layer.low
        parts: dict[str, Any] = {}
        for name, field, matrix in (
            ("qkv", "qkv", layer.qkv),
            ("o", "output", layer.output),
            ("gate_up", "gate_up", layer.gate_up),
            ("down", "down", layer.down),
        ):
            parts[field] = self._matrix(matrix)
            if name in low:
                parts[f"{field}_low"] = c.LowRankStruct(*map(self._matrix, low[name]))
        bias = layer.qkv_bias
        query_norm, key_norm = map(self._pin, layer.head_norms) if layer.head_norms else (0, 0)
        return c.LayerStruct(
            attention_norm=self._pin(layer.attention_norm),
            qkv_bias=None if bias is None else self._pin(bias),
            query_norm=query_norm,
            key_norm=key_norm,
            feed_norm=self._pin(layer.feed_norm),
            **parts,
        )

    def _sampler(self, tables: Tables) -> c.SamplerStruct:
        both = (tables.previous, tables.candidate)
        return c.SamplerStruct(
            self._matrix(_state(tables)),
            *(self._pin(_padded(table.values, 1)) for table in both),
            *(self._pin(table.scales) for table in both),
        )

    def _matrix(self, matrix: GroupedMatrix) -> c.MatrixStruct:
        outs, ins = matrix.shape
        return c.MatrixStruct(self._pin(self._arena.put(matrix)), matrix.bits, outs, ins)

    def _pin(self, tensor: Tensor) -> int:
        """Keep a tensor alive as long as the model; return its address."""
        self._pinned.append(tensor)
        return tensor.data_ptr()


def _tables(weights: Weights, adapter: Adapter | None, config: ModelConfig) -> Tables | None:
    if adapter is None or adapter.sampler is None:
        return None
    embedding = weights.embedding
    return Tables.of(adapter.sampler, lambda ids: embedding.rows(ids).dense(), config.vocab_size)


def _state(tables: Tables) -> GroupedMatrix:
    return GroupedMatrix.quantize(_padded(tables.state, 0), 8)


def _padded(tensor: Tensor, dim: int) -> Tensor:
    padding = -tensor.shape[dim] % TILE
    return F.pad(tensor, (0, padding) if dim else (0, 0, 0, padding)).contiguous()


def _rotations(config: ModelConfig, length: int) -> Tensor:
    """[length, dim]: the cosines of each position, then the sines."""
    angles = torch.arange(length, dtype=torch.float32).unsqueeze(1) * frequencies(config)
    return torch.cat([angles.cos(), angles.sin()], 1).contiguous()


def _numbers(groups: Sequence[MaskGroup], slots: int) -> Any:
    """``MaskGroup`` structures of ``rank.h``: 3 int32 each."""
    numbers = [
        number
        for group in groups
        for number in (
            *(group.row * slots + group.before, group.row * slots + group.masks.start),
            len(group.masks),
        )
    ]
    return (c_int32 * len(numbers))(*numbers)


def _changes(penalties: Sequence[Penalty | None], slots: int) -> Any:
    """Return ``Penalty`` structures (``predict.h``), one for each slot, or None. They point into
    tensors of ``penalties``.
    """
    if not any(penalties):
        return None
    structs: list[c.PenaltyStruct] = []
    for penalty in penalties:
        changed = [] if penalty is None else _changed_slots(penalty)[:slots]
        structs += [*changed, *[c.PenaltyStruct()] * (slots - len(changed))]
    return (c.PenaltyStruct * len(structs))(*structs)


def _changed_slots(penalty: Penalty) -> list[c.PenaltyStruct]:
    first_at = None if penalty.first_at is None else penalty.first_at.data_ptr()
    slots = [c.PenaltyStruct(first_at, count, penalty.factor) for count in penalty.known]
    for slot, addition in zip(slots, penalty.additions, strict=False):
        slot.num_added = len(addition.ids)
        slot.ids, slot.amounts = addition.ids.data_ptr(), addition.amounts.data_ptr()
    return slots
