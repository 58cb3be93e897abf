"""The trainable parameters of an adapter: low-rank updates, mask embeddings, sampler head."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from mars_runtime.files.outputs import write_text
from mars_runtime.lab.training.adapter.base import FrozenBase
from mars_runtime.model.adapter import FORMAT, read_tensors
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import ADAPTER

UPDATE_FACTOR = 2.0
"""Saved files contain ``b`` multiplied by this factor."""
MAX_FILE_BYTES = 9_500_000
SAMPLER_WIDTH = 512
MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Part of a layer -> the matrices of transformers that share its update."""


@dataclass(frozen=True, slots=True)
class Form:
    """rank: of the updates of o and down; the joined matrices qkv and gate_up have twice this rank.
    embeddings: 1, or one for each position in a group."""

    rank: int
    embeddings: int = 1
    sampler: bool = False


class Parameters(nn.Module):
    """The float32 parameters of an adapter. The update is zero at first."""

    def __init__(self, base: FrozenBase, form: Form, seed: int) -> None:
        super().__init__()
        self.form = form
        self._base = base  # a dataclass, so its model is not registered here
        random = torch.Generator(torch.get_default_device()).manual_seed(seed)
        self.a, self.b = nn.ParameterDict(), nn.ParameterDict()
        for index in range(self._base.num_layers):
            for part in MODULES:
                matrices = self._matrices(index, part)
                inputs, outputs = matrices[0].in_features, sum(m.out_features for m in matrices)
                rank = form.rank * (2 if len(matrices) > 1 else 1)
                a = torch.randn(rank, inputs, generator=random) * inputs**-0.5
                self.a[f"{index}_{part}"] = nn.Parameter(a)
                self.b[f"{index}_{part}"] = nn.Parameter(torch.zeros(outputs, rank))
        mean = base.embedding.float().mean(0)
        self.mask_embedding = nn.Parameter(mean.repeat(form.embeddings, 1))
        self.sampler = SamplerModule(len(mean)) if form.sampler else None

    def _matrices(self, index: int, part: str) -> list[nn.Linear]:
        layer = self._base.model.model.layers[index]
        return [layer.get_submodule(name) for name in MODULES[part]]

    def embedding(self, masks: int) -> Tensor:
        return self.mask_embedding[torch.arange(masks).clamp(max=self.form.embeddings - 1)]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for index in range(self._base.num_layers):
                for part in MODULES:
                    matrices = self._matrices(index, part)
                    a, b = self.a[f"{index}_{part}"], UPDATE_FACTOR * self.b[f"{index}_{part}"]
                    rows = b.split([matrix.out_features for matrix in matrices])
                    for matrix, own in zip(matrices, rows, strict=True):
                        hooks.enter_context(matrix.register_forward_hook(_added(a, own)))
            yield

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Raises CheckpointError."""
        saved = read_tensors(folder)
        tensors = dict(self.saved())
        if saved.keys() != tensors.keys() or any(saved[k].shape != tensors[k].shape for k in saved):
            raise CheckpointError(
                f"--adapter {folder} has no adapter of the same form and base. Pass the --rank, "
                "--mask-embeddings and --sampler with which it was trained."
            )
        for name, tensor in tensors.items():
            tensor.copy_(saved[name] / UPDATE_FACTOR if name.endswith(".b") else saved[name])

    def saved(self) -> Iterator[tuple[str, Tensor]]:
        yield "mask_embedding", self.mask_embedding.data
        for name in self.a:
            index, part = name.split("_", 1)
            yield f"layers.{index}.{part}.a", self.a[name].data
            yield f"layers.{index}.{part}.b", self.b[name].data
        if self.sampler is not None:
            for name, weight in self.sampler.named_parameters():
                yield f"sampler.{name}", weight.data

    def save(self, folder: Path, metadata: dict[str, Any]) -> None:
        """Write bfloat16; other weight files are removed."""
        shards: list[dict[str, Tensor]] = [{}]
        for name, tensor in self.saved():
            rounded = (UPDATE_FACTOR * tensor if name.endswith(".b") else tensor).bfloat16()
            if sum(t.nbytes for t in shards[-1].values()) + rounded.nbytes > MAX_FILE_BYTES:
                shards.append({})
            shards[-1][name] = rounded.contiguous()
        folder.mkdir(parents=True, exist_ok=True)
        written = set()
        for number, shard in enumerate(shards, 1):
            path = folder / f"adapter-{number}-of-{len(shards)}.safetensors"
            partial = path.with_suffix(".partial")
            save_file(shard, partial)
            written.add(partial.replace(path))
        for path in {*folder.glob("adapter-*-of-*.safetensors*")} - written:
            path.unlink()
        settings = {"format": FORMAT, "rank": self.form.rank, **metadata}
        write_text(folder / ADAPTER, json.dumps(settings, indent=1) + "\n")


def _added(a: Tensor, b: Tensor) -> Any:
    def hook(_module: nn.Module, inputs: tuple[Tensor], product: Tensor) -> Tensor:
        return product + F.linear(F.linear(inputs[0], a), b)

    return hook


class SamplerModule(nn.Module):
    """Re-ranks the best candidates of a mask, given the token before it.

    score(c) = logit(c) + E[c] . W2 silu(W1 [E[previous]; h]), for the base's embedding E and the
    mask's normed hidden state h.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * hidden_size, SAMPLER_WIDTH, bias=False)
        self.second = nn.Linear(SAMPLER_WIDTH, hidden_size, bias=False)
        nn.init.zeros_(self.second.weight)

    def forward(self, previous: Tensor, h: Tensor, candidates: Tensor, logits: Tensor) -> Tensor:
        """previous, h: [N, H]. candidates: [N, C, H]. logits: [N, C]. Returns float32 [N, C]."""
        direction: Tensor = self.second(F.silu(self.first(torch.cat([previous.float(), h], -1))))
        return logits.float() + (candidates.float() @ direction[:, :, None])[..., 0]
