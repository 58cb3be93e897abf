"""Low-rank updates that act on mask tokens only: files, weights, and their use in a forward.

A folder holds ``adapter.json`` and one or more ``adapter*.safetensors``. The base is unchanged, and
real tokens are computed as without an adapter: the low-rank products of their rows are multiplied
by zero before they are added, so each row equals the base's to the last bit. Related: gated LoRA
(arXiv 2507.11851), I-DLM (arXiv 2604.11035).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mars_runtime.inputs import check_regular, read_text
from mars_runtime.model.attention import packed_order, rotary_order
from mars_runtime.model.config import CheckpointError, ModelConfig, printable
from mars_runtime.model.files import ADAPTER, ADAPTER_FILES, weight_files
from mars_runtime.model.forward import Branches
from mars_runtime.model.reranker import SamplerWeights

FORMAT = 1
PARTS = ("qkv", "o", "gate_up", "down")
EMBEDDING = "mask_embedding"
SAMPLER = ("sampler.first.weight", "sampler.second.weight")


@dataclass(frozen=True, slots=True)
class Update:
    """y = W x + b (a x), with ``a`` [rank, in] and ``b`` [out, rank]; b includes any scale."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """The weights that are added to a base for its masks.

    mask_embedding: [n, hidden], the embeddings of masks by their place in a group (how many masks
        directly precede them); the last one serves all further places.
    layers: for each layer the updates by part. ``qkv`` holds queries, then keys, then values in
        transformers' order of rows, ``gate_up`` the gate, then up.
    block_size: the B it was trained with. mask_token: the base's token that serves as mask. base:
        description of the base it was trained on. sampler: the sampler head, if there is one.
    """

    mask_embedding: Tensor
    layers: tuple[Mapping[str, Update], ...]
    block_size: int
    mask_token: str
    base: str = ""
    sampler: SamplerWeights | None = None

    @classmethod
    def load(cls, folder: Path, config: ModelConfig) -> Adapter:
        """Load the adapter in ``folder`` for a base of this shape. Raises CheckpointError."""
        description = _read_json(folder / ADAPTER)
        tensors = read_tensors(folder)
        embedding = tensors.pop(EMBEDDING, None)
        if embedding is None or embedding.shape[1:] != (config.hidden_size,) or not len(embedding):
            raise CheckpointError(_advice(folder, f"has no {EMBEDDING} of the base's size"))
        sampler = _sampler(tensors, config, folder)
        layers = tuple(dict(_updates(tensors, i, config, folder)) for i in range(config.num_layers))
        if tensors:
            raise CheckpointError(
                _advice(folder, f"has a weight of no use, {printable(min(tensors))}")
            )
        block_size, mask_token = description.get("block_size"), description.get("mask_token")
        if type(block_size) is not int or block_size < 1 or not isinstance(mask_token, str):
            raise CheckpointError(
                _advice(folder, "does not say its block_size and mask_token in adapter.json")
            )
        base = str(description.get("base", ""))
        return cls(embedding, layers, block_size, mask_token, base, sampler)

    def weights(self) -> Iterator[Tensor]:
        """Yield every weight, to measure or to check."""
        yield self.mask_embedding
        for layer in self.layers:
            for update in layer.values():
                yield from (update.a, update.b)
        if self.sampler is not None:
            yield from (self.sampler.first, self.sampler.second)


def _sampler(
    tensors: dict[str, Tensor], config: ModelConfig, folder: Path
) -> SamplerWeights | None:
    """Remove the sampler head from ``tensors`` and return it, or None."""
    weights = [tensors.pop(name) for name in SAMPLER if name in tensors]
    if not weights:
        return None
    hidden = config.hidden_size
    fits = [tensor.shape for tensor in weights] == [
        (len(weights[0]), 2 * hidden),
        (hidden, len(weights[0])),
    ]
    if not fits:
        raise CheckpointError(_advice(folder, "has a sampler that does not fit the base"))
    return SamplerWeights(*weights)


def _updates(
    tensors: dict[str, Tensor], layer: int, config: ModelConfig, folder: Path
) -> Iterator[tuple[str, Update]]:
    """Remove a layer's updates from ``tensors`` and yield them. Parts may be missing."""
    for part, (outputs, inputs) in part_shapes(config).items():
        a, b = (tensors.pop(f"layers.{layer}.{part}.{name}", None) for name in "ab")
        if a is None and b is None:
            continue
        if a is None or b is None or a.dim() != 2 or not _fits(a, b, inputs, outputs):
            raise CheckpointError(
                _advice(folder, f"does not fit the base in layer {layer}, {part}")
            )
        yield part, Update(a, b)


def _fits(a: Tensor, b: Tensor, inputs: int, outputs: int) -> bool:
    return a.shape[1] == inputs and b.shape == (outputs, len(a))


def part_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return (outputs, inputs) of each part of a layer."""
    hidden, heads = config.hidden_size, config.num_heads * config.head_dim
    both = heads + 2 * config.num_kv_heads * config.head_dim
    return {
        "qkv": (both, hidden),
        "o": (hidden, heads),
        "gate_up": (2 * config.intermediate_size, hidden),
        "down": (hidden, config.intermediate_size),
    }


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors, stored as bf16 or fp16, in fp32. Raises CheckpointError."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder, ADAPTER_FILES):
        try:
            check_regular(path)
            with safe_open(path, framework="pt") as file:
                of_file = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(_advice(folder, f"cannot be read, {path.name}")) from error
        if both := tensors.keys() & of_file.keys():
            raise CheckpointError(_advice(folder, f"holds {printable(min(both))} in two files"))
        tensors |= of_file
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise CheckpointError(_advice(folder, "has weights that are not finite"))
    return tensors


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(_advice(path.parent, "has no readable adapter.json")) from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise CheckpointError(_advice(path.parent, f"is not of format {FORMAT}"))
    return value


def _advice(folder: Path, fault: str) -> str:
    return f"The adapter in {folder} {fault}: restore it from the repository."


@dataclass(frozen=True, slots=True)
class MaskRows:
    """The masks among the N tokens of one forward, and what the adapter adds to them.

    gate: [N, 1], 1 for a mask, else 0. embedding: [N, hidden], each mask's embedding by its place.
    updates: for each layer (a [in, rank], b [rank, out]) by part.
    """

    gate: Tensor
    embedding: Tensor
    updates: Sequence[Mapping[str, tuple[Tensor, Tensor]]]

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings [N, hidden] with the masks' own in their places."""
        return torch.where(self.gate.bool(), self.embedding, x)

    def add(self, y: Tensor, x: Tensor, layer: int, part: str) -> None:
        """Add the masks' update to ``y`` [N, out], the product of ``x`` [N, in]."""
        if part in self.updates[layer]:
            a, b = self.updates[layer][part]
            y.addmm_((x @ a).mul_(self.gate), b)


class MaskAdapter:
    """An adapter prepared for one model: on its device, in its dtype and in its order of rows."""

    def __init__(
        self,
        adapter: Adapter,
        mask_id: int,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._mask_id = mask_id
        self._dtype = dtype
        self._is_cpu = device.type == "cpu"
        self._embedding = adapter.mask_embedding.to(device, dtype)
        self._updates = [
            {
                part: _prepared(
                    part, update.a.to(device, dtype), update.b.to(device, dtype), config
                )
                for part, update in layer.items()
            }
            for layer in adapter.layers
        ]

    def groups(self, tokens: Tensor) -> Branches:
        """Return branches for causal rows of tokens [R, Q].

        Consecutive masks form a group, so positions - roots is the place of each mask in its group.
        """
        slots = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        is_mask = tokens == self._mask_id
        first = torch.where(is_mask, -1, slots).cummax(1).values + 1
        first = torch.where(is_mask, first, slots)
        return Branches(slots, first, first)

    def find(self, tokens: Tensor, branches: Branches | None) -> MaskRows | None:
        """Return the masks among tokens [R, Q]; None if there are none (detected on a CPU only)."""
        is_mask = tokens == self._mask_id
        if self._is_cpu and not is_mask.any():
            return None
        branches = self.groups(tokens) if branches is None else branches
        positions = branches.positions - branches.roots
        positions = positions.clamp(0, len(self._embedding) - 1).flatten()
        gate = is_mask.to(self._dtype).view(-1, 1)
        return MaskRows(gate, self._embedding[positions], self._updates)


def _prepared(part: str, a: Tensor, b: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Return a [in, rank] and b [rank, out], ordered like the matrices that they are added to."""
    dim = config.head_dim
    heads = packed_order(config.num_heads, config.num_kv_heads)
    if part == "qkv":
        turn, num_kv_heads = rotary_order(dim), config.num_kv_heads
        query, key, value = b.view(-1, dim, b.shape[1]).tensor_split(
            (config.num_heads, config.num_heads + num_kv_heads)
        )
        b = torch.cat([query[heads][:, turn], key[:, turn], value]).flatten(0, 1)
    elif part == "o":
        a = a.view(len(a), config.num_heads, dim)[:, heads].flatten(1)
    return a.t().contiguous(), b.t().contiguous()
