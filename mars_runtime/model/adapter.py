"""Adapters: low-rank updates of a base model that act on mask tokens only.

The products of real tokens are multiplied by zero before they are added, so their results are
bitwise those of the base. Related: gated LoRA (arXiv 2507.11851), I-DLM (arXiv 2604.11035).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shown

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mars_runtime.files.inputs import check_regular
from mars_runtime.model.attention import packed_order, rotary_order
from mars_runtime.model.config import CheckpointError, ModelConfig, printable
from mars_runtime.model.files import ADAPTER, ADAPTER_FILES, read_json, weight_files
from mars_runtime.model.forward import Branches
from mars_runtime.model.reranker import SamplerWeights

FORMAT = 1
PARTS = ("qkv", "o", "gate_up", "down")
EMBEDDING = "mask_embedding"
SAMPLER = ("sampler.first.weight", "sampler.second.weight")


@dataclass(frozen=True, slots=True)
class Update:
    """y = W x + b (a x). a: [rank, in]. b: [out, rank], multiplied by the scale."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """mask_embedding: [n, hidden], by index in the group; masks after the first n use the last.
    layers: the updates by part; rows are in transformers' order.
    """

    mask_embedding: Tensor
    layers: tuple[Mapping[str, Update], ...]
    block_size: int
    mask_token: str
    base: str = ""
    sampler: SamplerWeights | None = None

    @classmethod
    def load(cls, folder: Path, config: ModelConfig) -> Adapter:
        """Raises CheckpointError."""
        description = read_json(folder / ADAPTER)
        if description.get("format") != FORMAT:
            raise _error(folder, f"does not have format {FORMAT} in {ADAPTER}")
        tensors = read_tensors(folder)
        embedding = tensors.pop(EMBEDDING, None)
        if embedding is None or embedding.shape[1:] != (config.hidden_size,) or not len(embedding):
            size = f"{config.hidden_size} numbers, the hidden size of its base"
            raise _error(folder, f"has no {EMBEDDING} with rows of {size}")
        sampler = _sampler(tensors, config, folder)
        layers = tuple(dict(_updates(tensors, i, config, folder)) for i in range(config.num_layers))
        if tensors:
            raise _error(folder, f"contains the unknown weight {printable(min(tensors))}")
        block_size, mask_token = description.get("block_size"), description.get("mask_token")
        if type(block_size) is not int or block_size < 1 or not isinstance(mask_token, str):
            got = f"{shown(block_size)} and {shown(mask_token)}"
            needs = "must have a positive whole block_size and a mask_token in adapter.json"
            raise _error(folder, f"{needs}, got {got}")
        base = str(description.get("base", ""))
        return cls(embedding, layers, block_size, mask_token, base, sampler)

    def weights(self) -> Iterator[Tensor]:
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
    hidden, width = config.hidden_size, len(weights[0])
    if [tensor.shape for tensor in weights] != [(width, 2 * hidden), (hidden, width)]:
        raise _error(
            folder, f"has a sampler head that does not fit the base's hidden size, {hidden}"
        )
    return SamplerWeights(*weights)


def _updates(
    tensors: dict[str, Tensor], layer: int, config: ModelConfig, folder: Path
) -> Iterator[tuple[str, Update]]:
    """Remove a layer's updates from ``tensors`` and yield them."""
    for part, (outputs, inputs) in part_shapes(config).items():
        a, b = (tensors.pop(f"layers.{layer}.{part}.{name}", None) for name in "ab")
        if a is None and b is None:
            continue
        if a is None or b is None or a.dim() != 2 or not _fits(a, b, inputs, outputs):
            raise _error(
                folder,
                f"has an update of {part} in layer {layer} that is incomplete or does not fit the "
                f"base's {outputs} x {inputs} matrix",
            )
        yield part, Update(a, b)


def _fits(a: Tensor, b: Tensor, inputs: int, outputs: int) -> bool:
    return a.shape[1] == inputs and b.shape == (outputs, len(a))


def part_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return (outputs, inputs) of each matrix of a layer."""
    hidden, heads = config.hidden_size, config.num_heads * config.head_dim
    both = heads + 2 * config.num_kv_heads * config.head_dim
    return {
        "qkv": (both, hidden),
        "o": (hidden, heads),
        "gate_up": (2 * config.intermediate_size, hidden),
        "down": (hidden, config.intermediate_size),
    }


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors in an adapter's folder in fp32. Raises CheckpointError."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder, ADAPTER_FILES):
        try:
            check_regular(path)
            with safe_open(path, framework="pt") as file:
                of_file = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError) as error:
            raise _error(folder, f"has the unreadable file {printable(path.name)}") from error
        if duplicates := tensors.keys() & of_file.keys():
            raise _error(folder, f"contains {printable(min(duplicates))} in two files")
        tensors |= of_file
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise _error(folder, "has weights that are not finite")
    return tensors


def _error(folder: Path, fault: str) -> CheckpointError:
    return CheckpointError(f"The adapter in {folder} {fault}: restore it from the repository.")


@dataclass(frozen=True, slots=True)
class MaskRows:
    """gate: [N, 1], 1 for a mask, else 0. embedding: [N, hidden]. updates: for each layer, (a [in,
    rank], b [rank, out]) by part.
    """

    gate: Tensor
    embedding: Tensor
    updates: Sequence[Mapping[str, tuple[Tensor, Tensor]]]

    def embed(self, x: Tensor) -> Tensor:
        return torch.where(self.gate.bool(), self.embedding, x)

    def add(self, y: Tensor, x: Tensor, layer: int, part: str) -> None:
        """Add a part's update to the masks' rows of ``y`` [N, out], computed from ``x`` [N, in], in
        place.
        """
        if part in self.updates[layer]:
            a, b = self.updates[layer][part]
            y.addmm_((x @ a).mul_(self.gate), b)


class MaskAdapter:
    """An adapter on a model's device, in the model's dtype and order of features."""

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

        def prepared(part: str, update: Update) -> tuple[Tensor, Tensor]:
            a, b = update.a.to(device, dtype), update.b.to(device, dtype)
            return _prepared(part, a, b, config)

        self._updates = [
            {part: prepared(part, update) for part, update in layer.items()}
            for layer in adapter.layers
        ]

    def groups(self, tokens: Tensor) -> Branches:
        """Return branches with each run of consecutive masks as one group."""
        slots = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        is_mask = tokens == self._mask_id
        first = torch.where(is_mask, -1, slots).cummax(1).values + 1
        first = torch.where(is_mask, first, slots)
        return Branches(slots, first, first)

    def find(self, tokens: Tensor, branches: Branches | None) -> MaskRows | None:
        """Return the masks, or None on a CPU if there are none. On a GPU that check would make the
        host wait.
        """
        is_mask = tokens == self._mask_id
        if self._is_cpu and not is_mask.any():
            return None
        branches = self.groups(tokens) if branches is None else branches
        positions = branches.positions - branches.roots
        positions = positions.clamp(0, len(self._embedding) - 1).flatten()
        gate = is_mask.to(self._dtype).view(-1, 1)
        return MaskRows(gate, self._embedding[positions], self._updates)


def _prepared(part: str, a: Tensor, b: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Return ``a`` [in, rank] and ``b`` [rank, out], with features in the model's order."""
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
