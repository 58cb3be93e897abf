"""A model whose forward is one call of the compiled library.

Answers what ``qwen2.Qwen2`` answers, for quantised weights on a CPU. What a position gives does not
depend, to the last bit, on the rows and positions beside it (tests/test_law_bitwise.py).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.acceptance import Draw
from mars_runtime.branches import Branches
from mars_runtime.events import Proposal
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.attention import frequencies
from mars_runtime.model.config import ModelConfig
from mars_runtime.model.grouped import GROUP, GroupedMatrix
from mars_runtime.model.native import library as c
from mars_runtime.model.native.cache import PackedKVCache
from mars_runtime.model.native.pack import TILE, Arena, pack, packed_bytes
from mars_runtime.model.native.reading import Reader
from mars_runtime.model.native.weights import LayerWeights, Weight, Weights
from mars_runtime.model.reranker import Tables
from mars_runtime.model.slots import MaskGroup, chosen
from mars_runtime.model.threads import HIDDEN, Threads
from mars_runtime.settings import Metric

MAX_THREADS = 64


def unsupported(config: ModelConfig) -> str | None:
    """Why the native forward can't run a model of this shape, one sentence; None if it can."""
    sizes = (config.hidden_size, config.intermediate_size, config.head_dim)
    if any(size % GROUP for size in sizes):
        return f"Its sizes {sizes} are not all multiples of {GROUP}."
    return None


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one forward reads and multiplies; as in ``profiling.forward.Load``."""

    weight_bytes: int
    head_bytes: int
    body_weights: int
    head_weights: int
    position_bytes: int


class NativeModel:
    """A causal language model on the CPU. ``bits``: of the matrices of its layers; None: as they
    are. Raises CheckpointError when a weight is missing or of another shape than it should be."""

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
    ) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.dtype = torch.float32  # of hidden states and logits
        self.cache_dtype = torch.float16
        self.product_dtype = torch.int8
        self.kept: dict[str, Any] = {}
        self.threads = Threads()
        self.ceiling: int | None = None
        self._library = library
        self._turns = torch.empty(0, config.head_dim)
        found = Weights(config, weights, bits, adapter)
        self._bits = sorted({matrix.bits for layer in found.layers for matrix in layer.base()})
        self.sizes = _sizes(config, found)
        self._held: list[Any] = []  # what the library has addresses of
        tables = _tables(found, adapter, config)
        matrices = [*found.matrices(), *([_state(tables)] if tables else [])]
        self._arena = Arena(sum(map(packed_bytes, matrices)))
        self._model = library.mars_new(ctypes.byref(self._spec(found, adapter, mask_id, tables)))
        # A process may end while a thread is still in a forward: then nothing is freed.
        weakref.finalize(self, library.mars_free, self._model).atexit = False
        self._reader = Reader(library, self._model, config.vocab_size, ranks=tables is not None)

    @property
    def arithmetic(self) -> str:
        """What the weights are kept in, and what they are multiplied in."""
        bits = " and ".join(f"int{bits}" for bits in self._bits)
        return f"{bits} weights, int8 products"

    @property
    def most_threads(self) -> int:
        """That a forward may get: ``ceiling``, or as many as PyTorch has."""
        return min(self.ceiling or torch.get_num_threads(), MAX_THREADS)

    def new_cache(self, rows: int, capacity: int) -> PackedKVCache:
        """An empty cache for ``rows`` rows of at most ``capacity`` tokens."""
        return PackedKVCache(self.cache_shape(rows, capacity))

    def cache_shape(self, rows: int, capacity: int) -> tuple[int, int, int, int, int]:
        """What PackedKVCache is told."""
        config = self.config
        return config.num_layers, rows, capacity, config.num_kv_heads, config.head_dim

    def forward(
        self,
        tokens: Tensor,
        cache: PackedKVCache,
        head: Tensor | slice | None,
        branches: Branches | None = None,
    ) -> Tensor | None:
        """``hidden`` and the ``logits`` of the slots that need some; None for no head (prefill)."""
        hidden = self.hidden(tokens, cache, branches)
        return None if head is None else self.logits(hidden, head)

    def hidden(
        self, tokens: Tensor, cache: PackedKVCache, branches: Branches | None = None
    ) -> Tensor:
        """One forward of Q tokens for each of the first R rows of the cache, without head.

        tokens: [R, Q] int64; the keys and values of token q of row r are written into slot
            cache.cursors[r] + q. Cursors are not moved. branches: what each token sees, by default
            all before it.
        Returns [R, Q, hidden], fp32. Raises ValueError when the cache is too short, IndexError for
        ids that the model does not have.
        """
        num_rows, num_tokens = tokens.shape
        cursors = cache.cursors[:num_rows]
        end = max(cursors) + num_tokens
        if end > cache.capacity:
            raise ValueError(f"slots up to {end} are needed and the cache has {cache.capacity}")
        if len(self._turns) < cache.capacity:
            self._turns = _turns(self.config, cache.capacity)
        ids, store = tokens.contiguous(), cache.store
        out = torch.empty(num_rows, num_tokens, self.config.hidden_size)
        feed = c.Feed(
            num_rows=num_rows,
            num_tokens=num_tokens,
            ids=ids.data_ptr(),
            cursors=(ctypes.c_int64 * num_rows)(*cursors),
            turns=self._turns.data_ptr(),
            cache=store.data_ptr(),
            layer_stride=store.stride(0),
            row_stride=store.stride(1),
            block_stride=store.stride(2),
        )
        if branches is not None:
            kept = [
                part.contiguous() for part in (branches.positions, branches.roots, branches.starts)
            ]
            feed.positions, feed.roots, feed.starts = (part.data_ptr() for part in kept)

        def call(num_threads: int) -> int:
            feed.num_threads = num_threads
            return int(self._library.mars_hidden(self._model, ctypes.byref(feed), out.data_ptr()))

        if self.threads.run(HIDDEN, tokens.numel(), self.most_threads, call):
            raise IndexError(f"a token id is outside 0 to {self.config.vocab_size - 1}")
        return out

    def logits(self, hidden: Tensor, head: Tensor | slice) -> Tensor:
        """What slots of a forward predict, [R, H, V] in fp32.

        head: the slots: [R, H] int64, or a slice of Q.
        """
        states = chosen(hidden, head)
        return self.threads.run(
            "logits",
            *(states.shape[:2].numel(), self.most_threads),
            lambda num_threads: self._reader.logits(states, num_threads),
        )

    def read(
        self,
        hidden: Tensor,
        head: Tensor | slice,
        forbidden: Tensor,
        metrics: Sequence[Metric],
        draws: Sequence[Draw | None] | None = None,
        groups: Sequence[MaskGroup] = (),
    ) -> list[list[Proposal]]:
        """``acceptance.read`` of the ``logits`` of these slots, which are kept only for rows that
        draw; the masks of ``groups`` as a sampler head chooses them, where there is one."""
        states = chosen(hidden, head)
        return self.threads.run(
            "read",
            *(states.shape[:2].numel(), self.most_threads),
            lambda num_threads: self._reader.read(
                states, forbidden, metrics, draws, groups, num_threads
            ),
        )

    def weights(self) -> Iterator[Tensor]:
        """The packed matrices, to measure."""
        yield from (part for part in self._held if isinstance(part, Tensor))

    def clock(self, *, is_on: bool) -> dict[str, float]:
        """Turn the clock of the forward's parts on or off; returns the seconds that it counted."""
        seconds = (ctypes.c_double * len(c.PARTS))()
        self._library.mars_clock(self._model, int(is_on), ctypes.byref(seconds))
        return dict(zip(c.PARTS, seconds, strict=True))

    def _spec(
        self,
        found: Weights,
        adapter: Adapter | None,
        mask_id: int | None,
        tables: Tables | None,
    ) -> c.Spec:
        config = self.config
        layers = (c.Layer * config.num_layers)(*map(self._layer, found.layers))
        self._held.append(layers)
        head = self._matrix(found.head)
        is_tied = found.embedding is found.head
        spec = c.Spec(
            vocab=config.vocab_size,
            hidden=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv=config.num_kv_heads,
            dim=config.head_dim,
            feed=config.intermediate_size,
            norm_floor=config.rms_norm_eps,
            layers=layers,
            final_norm=self._hold(found.final_norm),
            embedding=head if is_tied else self._matrix(found.embedding),
            head=head,
            mask_id=-1 if mask_id is None else mask_id,
        )
        if adapter is not None:
            table = adapter.mask_embedding.float().contiguous()
            spec.mask_embeddings, spec.num_mask_embeddings = self._hold(table), len(table)
        if tables is not None:
            spec.sampler = self._sampler(tables)
        return spec

    def _layer(self, layer: LayerWeights) -> c.Layer:
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
                parts[f"{field}_low"] = c.LowRank(*map(self._matrix, low[name]))
        bias = layer.qkv_bias
        return c.Layer(
            attention_norm=self._hold(layer.attention_norm),
            qkv_bias=None if bias is None else self._hold(bias),
            feed_norm=self._hold(layer.feed_norm),
            **parts,
        )

    def _sampler(self, tables: Tables) -> c.Sampler:
        both = (tables.previous, tables.candidate)
        return c.Sampler(
            self._matrix(_state(tables)),
            *(self._hold(_padded(table.values, 1)) for table in both),
            *(self._hold(table.scales) for table in both),
        )

    def _matrix(self, matrix: GroupedMatrix) -> c.Matrix:
        outs, ins = matrix.shape
        return c.Matrix(self._hold(self._arena.put(pack(matrix).flatten())), matrix.bits, outs, ins)

    def _hold(self, tensor: Tensor) -> int:
        self._held.append(tensor)
        return tensor.data_ptr()


def _sizes(config: ModelConfig, found: Weights) -> Sizes:
    """Adapters apart: plain decoding reads none."""
    body = [matrix for layer in found.layers for matrix in layer.base()]
    head = packed_bytes(found.head)
    return Sizes(
        weight_bytes=head + sum(map(packed_bytes, body)),
        head_bytes=head,
        body_weights=sum(math.prod(matrix.shape) for matrix in body),
        head_weights=math.prod(found.head.shape),
        position_bytes=4 * config.num_layers * config.num_kv_heads * config.head_dim,
    )


def _tables(found: Weights, adapter: Adapter | None, config: ModelConfig) -> Tables | None:
    if adapter is None or adapter.sampler is None:
        return None
    embedding = found.embedding
    return Tables.of(adapter.sampler, lambda ids: embedding.rows(ids).dense(), config.vocab_size)


def _state(tables: Tables) -> GroupedMatrix:
    return GroupedMatrix.quantize(_padded(tables.state, 0), 8)


def _padded(tensor: Tensor, dim: int) -> Tensor:
    """A matrix with zeros behind it, so that its size along ``dim`` is a multiple of a tile's."""
    padding = -tensor.shape[dim] % TILE
    return F.pad(tensor, (0, padding) if dim else (0, 0, 0, padding)).contiguous()


def _turns(config: ModelConfig, length: int) -> Tensor:
    """[length, dim]: cosines of the rotations of each position, then sines."""
    angles = torch.arange(length, dtype=torch.float32).unsqueeze(1) * frequencies(config)
    return torch.cat([angles.cos(), angles.sin()], 1).contiguous()
