"""The forward pass of Llama, Qwen2 and Qwen3 in PyTorch, with few operations per layer: their
overhead dominates in models as small as the bundled ones.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.cache import BlockKVCache
from mars_runtime.model.adapter import Adapter, MaskAdapter
from mars_runtime.model.attention import Positions, Window, attend, packed_order, rotary_order
from mars_runtime.model.captured import Bucket, CapturedForward, GraphRecorder, Record, Run
from mars_runtime.model.config import ModelConfig, checked_weight
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata, chosen
from mars_runtime.model.predictions import Rank
from mars_runtime.model.quantized import GroupedMatrix, Weight
from mars_runtime.model.reranker import Reranker, SamplerWeights, Tables
from mars_runtime.model.threads import TorchThreads
from mars_runtime.model.transfers import to_device
from mars_runtime.runs.events import Proposal

CAPACITY_STEP = 512  # captured caches have a multiple of so many slots, for reuse
MAX_IDLE = 2  # unused caches that are stored for reuse, enough for a race of two lanes


def _recycle(idle: list[BlockKVCache], cache: BlockKVCache) -> None:
    idle.append(cache)
    del idle[:-MAX_IDLE]


@dataclass(frozen=True, slots=True)
class Layer:
    """Matrices are [in, out]. head_norms: of query, then key heads, [Hq + Hkv, D], in
    ``rotary_order``.
    """

    attention_norm: Tensor
    projection: Tensor
    projection_bias: Tensor | None
    head_norms: Tensor | None
    output: Tensor
    feed_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Transformer(CausalModel):
    """Weights are copied. adapter: acts only on tokens ``mask_id``. Raises CheckpointError."""

    record: Record | None = None  # of CUDA graphs; None on a CPU

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Weight],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        adapter: Adapter | None = None,
        mask_id: int | None = None,
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.dtype = dtype
        if self.device.type == "cuda":
            self.record = GraphRecorder(self.device)
        self._idle: list[BlockKVCache] = []
        self._weights = weights
        self._embedding = self._take("model.embed_tokens.weight").clone()
        self._layers = [self._layer(f"model.layers.{i}.") for i in range(config.num_layers)]
        self._final_norm = self._take_norm("model.norm.weight")
        name = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
        self._head = self._matrix(self._take(f"{name}.weight"))
        self._weights = {}
        self.threads: TorchThreads | None = None
        self._positions = Positions(config, dtype, self.device)
        self._adapter: MaskAdapter | None = None
        self._reranker: Reranker | None = None
        if adapter is not None:
            self._reranker = self._ranking(adapter.sampler)
            assert mask_id is not None, "an adapter needs the id of the mask token"
            self._adapter = MaskAdapter(adapter, mask_id, config, self.device, dtype)
        eps = config.rms_norm_eps
        self._norm_floor = torch.tensor(math.sqrt(config.hidden_size * eps))
        self._head_norm_floor = torch.tensor(math.sqrt(config.head_dim * eps))

    @property
    def is_bitwise(self) -> bool:
        return False

    @property
    def cache_dtype(self) -> torch.dtype:
        return self.dtype

    @property
    def arithmetic(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def new_cache(self, rows: int, capacity: int) -> BlockKVCache:
        """May reuse a dropped cache, with the forward passes that were captured on it."""
        if self.record is None:
            shape = self.config.cache_shape(rows, capacity)
            return BlockKVCache(shape, dtype=self.dtype, device=self.device)
        capacity = -(-capacity // CAPACITY_STEP) * CAPACITY_STEP
        fresh = self.config.cache_shape(rows, capacity)
        memory = next((dropped for dropped in self._idle if dropped.shape == fresh), None)
        if memory is None:
            memory = BlockKVCache(fresh, dtype=self.dtype, device=self.device)
            size = (self.config.hidden_size, self.dtype, self.device)
            memory.captured = CapturedForward(rows, capacity, *size)
        else:
            with contextlib.suppress(ValueError):  # another thread may have removed the memory
                self._idle.remove(memory)
            with torch.inference_mode():  # needed to change a tensor created in this mode
                memory.store.zero_()
        cache = memory.whole()
        weakref.finalize(cache, _recycle, self._idle, memory)
        return cache

    @torch.inference_mode()
    def hidden(
        self, tokens: Tensor, cache: BlockKVCache, branches: Branches | None = None
    ) -> Tensor:
        rows, queries = tokens.shape
        if self.record is not None and cache.captured is not None:
            cursors = cache.cursors[:rows]
            bucket = cache.captured.bucket(rows, queries, cursors)
            if bucket is not None:
                return self._replay(bucket, tokens.cpu(), cache, branches)
        tokens = to_device(tokens, self.device)
        branches = None if branches is None else branches.to(self.device)
        window = self._positions.open(cache, rows, queries, branches)
        run = partial(self._run, tokens, window, branches)
        return run() if self.threads is None else self.threads.run(tokens.numel(), run)

    def predict(
        self, hidden: Tensor, head: Tensor | slice, sampling: SamplingMetadata
    ) -> list[list[Proposal]]:
        rank: Rank | None = None
        if self._reranker is not None and sampling.groups:
            rank = partial(self._reranker.rank, chosen(hidden, head), sampling.groups)
        return sampling.proposals(self.logits(hidden, head), rank)

    def _replay(
        self, bucket: Bucket, tokens: Tensor, cache: BlockKVCache, branches: Branches | None
    ) -> Tensor:
        assert self.record is not None, "the caller checks that forward passes are recorded"
        if branches is None and self._adapter is not None:
            branches = self._adapter.groups(tokens)
        cursors = cache.cursors[: len(tokens)]
        states: Tensor = cache.captured(
            bucket, tokens, cursors, branches, partial(self._forward_on, cache), self.record
        )
        return states

    def _forward_on(self, cache: BlockKVCache) -> Run:
        memory = cache.uncaptured()
        self._positions.extend(memory.capacity)

        def run(tokens: Tensor, cursors: Tensor, branches: Branches, context: int) -> Tensor:
            window = self._positions.open_at(memory, cursors, tokens.shape[1], context, branches)
            return self._run(tokens, window, branches)

        return run

    @torch.inference_mode()
    def logits(self, hidden: Tensor, head: Tensor | slice) -> Tensor:
        x = chosen(hidden, head)
        run, width = partial(self._logits, x), x.shape[:2].numel()
        return run() if self.threads is None else self.threads.run(width, run)

    def _logits(self, x: Tensor) -> Tensor:
        normed = self._norm(x.flatten(0, 1), self._final_norm)
        return torch.mm(normed, self._head).view(*x.shape[:2], -1)

    def _run(self, tokens: Tensor, window: Window, branches: Branches | None = None) -> Tensor:
        masks = self._adapter.find(tokens, branches) if self._adapter is not None else None
        x = F.embedding(tokens.reshape(-1), self._embedding)
        x = x if masks is None else masks.embed(x)
        for index, layer in enumerate(self._layers):
            normed = self._norm(x, layer.attention_norm)
            projected = self._project(normed, layer)
            if masks is not None:
                masks.add(projected, normed, index, "qkv")
            if layer.head_norms is not None:
                self._norm_heads(projected, layer.head_norms)
            mixed = attend(projected, index, window, self.config)
            x.addmm_(mixed, layer.output)
            if masks is not None:
                masks.add(x, mixed, index, "o")
            normed = self._norm(x, layer.feed_norm)
            both = torch.mm(normed, layer.gate_up)
            if masks is not None:
                masks.add(both, normed, index, "gate_up")
            gate, up = both.chunk(2, dim=-1)
            inner = F.silu(gate).mul_(up)
            x.addmm_(inner, layer.down)
            if masks is not None:
                masks.add(x, inner, index, "down")
        return x.view(*tokens.shape, -1)

    def _project(self, x: Tensor, layer: Layer) -> Tensor:
        if layer.projection_bias is None:
            return torch.mm(x, layer.projection)
        return torch.addmm(layer.projection_bias, x, layer.projection)

    def _norm_heads(self, projected: Tensor, weight: Tensor) -> None:
        heads, dim = weight.shape
        x = projected.view(len(projected), -1, dim)[:, :heads]
        if self._has_short_norm:
            length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            x.div_(length.hypot_(self._head_norm_floor)).mul_(weight)
        else:
            x.copy_(F.rms_norm(x, (dim,), None, self.config.rms_norm_eps).mul_(weight))

    def weights(self) -> Iterator[Tensor]:
        yield from (self._embedding, self._final_norm, self._head)
        for layer in self._layers:
            parts = (getattr(layer, name) for name in Layer.__slots__)
            yield from (part for part in parts if part is not None)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """On a CPU ``F.rms_norm`` runs seven small operations, this three: ``hypot`` adds eps, and
        the stored weight is multiplied by sqrt(H).
        """
        if not self._has_short_norm:
            return F.rms_norm(x, weight.shape, weight, self.config.rms_norm_eps)
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(self._norm_floor)).mul_(weight)

    @property
    def _has_short_norm(self) -> bool:
        return self.device.type == "cpu" and self.dtype == torch.float32

    def _ranking(self, sampler: SamplerWeights | None) -> Reranker | None:
        if sampler is None:
            return None
        scale = math.sqrt(self.config.hidden_size) if self._has_short_norm else 1.0
        norm = (self._final_norm / scale).float()
        table, size = self._embedding, self.config.vocab_size
        placed = SamplerWeights(sampler.first.to(self.device), sampler.second.to(self.device))
        tables = Tables.of(placed, lambda ids: F.embedding(ids, table).float(), size)
        return Reranker(tables, norm, self.config.rms_norm_eps)

    def _layer(self, prefix: str) -> Layer:
        attention, feed = f"{prefix}self_attn.", f"{prefix}mlp."
        config = self.config
        bias = self._projection(f"{attention}{{}}_proj.bias") if config.attention_bias else None
        output = self._take(f"{attention}o_proj.weight")
        heads = packed_order(config.num_heads, config.num_kv_heads)
        output = output.view(config.hidden_size, config.num_heads, -1)[:, heads].flatten(1)
        gate_up = [self._take(f"{feed}{name}_proj.weight") for name in ("gate", "up")]
        return Layer(
            attention_norm=self._take_norm(f"{prefix}input_layernorm.weight"),
            projection=self._matrix(self._projection(f"{attention}{{}}_proj.weight")),
            projection_bias=bias,
            head_norms=self._head_norms(attention) if config.qk_norm else None,
            output=self._matrix(output),
            feed_norm=self._take_norm(f"{prefix}post_attention_layernorm.weight"),
            gate_up=self._matrix(torch.cat(gate_up)),
            down=self._matrix(self._take(f"{feed}down_proj.weight")),
        )

    def _projection(self, name: str) -> Tensor:
        """Return the query, key and value weights as one matrix, reordered for ``attend``."""
        config = self.config
        turn = rotary_order(config.head_dim)
        parts = {key: self._take(name.format(key)) for key in "qkv"}
        heads = {
            key: part.view(-1, config.head_dim, *part.shape[1:]) for key, part in parts.items()
        }
        query = heads["q"][packed_order(config.num_heads, config.num_kv_heads)][:, turn]
        return torch.cat([query, heads["k"][:, turn], heads["v"]]).flatten(0, 1)

    def _head_norms(self, prefix: str) -> Tensor:
        config = self.config
        turn = rotary_order(config.head_dim)
        parts = (("q", config.num_heads), ("k", config.num_kv_heads))
        norms = [
            self._take_norm(f"{prefix}{name}_norm.weight")[turn].expand(count, -1)
            for name, count in parts
        ]
        return torch.cat(norms)

    def _take(self, name: str) -> Tensor:
        weight: Weight = checked_weight(self._weights, name, self.config)
        dense = weight.dense() if isinstance(weight, GroupedMatrix) else weight
        return dense.to(device=self.device, dtype=self.dtype)

    def _take_norm(self, name: str) -> Tensor:
        weight = self._take(name)
        return weight * math.sqrt(len(weight)) if self._has_short_norm else weight

    def _matrix(self, weight: Tensor) -> Tensor:
        """Transpose to [in, out]. On a CPU the memory is transposed too; otherwise a product with 5
        rows can take twice as long.
        """
        transposed = weight.t()
        return transposed.contiguous() if self.device.type == "cpu" else transposed
