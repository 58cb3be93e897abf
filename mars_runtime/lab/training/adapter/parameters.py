"""Trained parameters: low-rank updates, mask embeddings and the optional sampler head, with the
files that ``mars_runtime.model.adapter`` reads. For comparison also all weights of the base, which
are not saved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from mars_runtime.lab.training.backbone import Backbone, Base, Update
from mars_runtime.model.adapter import FORMAT, PARTS, read_tensors
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import ADAPTER
from mars_runtime.outputs import write_text

ALPHA = 2.0
"""Factor of an update, multiplied into ``b`` when it is saved."""
MAX_FILE_BYTES = 9_500_000
CANDIDATES = 32
SAMPLER_WIDTH = 512


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an adapter.

    rank: of the updates of o and down; qkv and gate_up, which join several matrices, have twice as
    much. embeddings: 1 for all masks, or one per position. full: fine-tune all weights instead.
    """

    rank: int
    embeddings: int = 1
    sampler: bool = False
    full: bool = False

    def ranks(self) -> dict[str, int]:
        """Return the rank of each part."""
        return {"qkv": 2 * self.rank, "o": self.rank, "gate_up": 2 * self.rank, "down": self.rank}


class Parameters(nn.Module):
    """float32 masters of an adapter for ``model``; the initial update is zero."""

    def __init__(self, model: Backbone, form: Form, seed: int) -> None:
        super().__init__()
        self.form = form
        random = torch.Generator(torch.get_default_device()).manual_seed(seed)
        self.a, self.b = nn.ParameterDict(), nn.ParameterDict()
        for index, layer in enumerate(model.layers):
            for part in PARTS:
                rank = form.ranks()[part]
                outputs, inputs = layer.weights[part].shape
                a = torch.randn(rank, inputs, generator=random) * inputs**-0.5
                self.a[f"{index}_{part}"] = nn.Parameter(a)
                self.b[f"{index}_{part}"] = nn.Parameter(torch.zeros(outputs, rank))
        mean = model.embedding.float().mean(0)
        self.mask_embedding = nn.Parameter(mean.repeat(form.embeddings, 1))
        self.sampler = SamplerModule(len(mean)) if form.sampler else None

    def embedding(self, masks: int) -> Tensor:
        """Return embeddings [masks, H] by position; the last one also serves later positions."""
        return self.mask_embedding[torch.arange(masks).clamp(max=self.form.embeddings - 1)]

    def update(self, dtype: torch.dtype) -> Update:
        """Return the current update, in the dtype of the products."""
        a = {name: weight.to(dtype) for name, weight in self.a.items()}
        b = {name: (ALPHA * weight).to(dtype) for name, weight in self.b.items()}

        def added(index: int, part: str, x: Tensor, y: Tensor) -> Tensor:
            name = f"{index}_{part}"
            return y.addmm_(F.linear(x, a[name]), b[name].t())

        return added

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Load a saved adapter of the same form. Raises CheckpointError."""
        saved = read_tensors(folder)
        wanted = dict(self.saved())
        if saved.keys() != wanted.keys() or any(saved[k].shape != wanted[k].shape for k in saved):
            raise CheckpointError(
                f"The adapter in {folder} is missing, or has another form or base. Train with its "
                "rank, mask embeddings and sampler."
            )
        for name, tensor in wanted.items():
            tensor.copy_(saved[name] / ALPHA if name.endswith(".b") else saved[name])

    def saved(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor with its name in the files."""
        yield "mask_embedding", self.mask_embedding.data
        for name in self.a:
            index, part = name.split("_", 1)
            yield f"layers.{index}.{part}.a", self.a[name].data
            yield f"layers.{index}.{part}.b", self.b[name].data
        if self.sampler is not None:
            for name, weight in self.sampler.named_parameters():
                yield f"sampler.{name}", weight.data

    def save(self, folder: Path, said: dict[str, Any]) -> None:
        """Write adapter*.safetensors in bfloat16 and adapter.json, each through a partial file.

        Files of an earlier adapter are removed, compressed ones included.
        """
        tensors = {
            name: (ALPHA * tensor if name.endswith(".b") else tensor).bfloat16()
            for name, tensor in self.saved()
        }
        folder.mkdir(parents=True, exist_ok=True)
        shards = in_files(tensors)
        written = set()
        for number, shard in enumerate(shards, 1):
            path = folder / f"adapter-{number}-of-{len(shards)}.safetensors"
            partial = path.with_suffix(".partial")
            save_file(shard, partial)
            partial.replace(path)
            written.add(path)
        for path in {*folder.glob("adapter-*-of-*.safetensors*")} - written:
            path.unlink()
        settings = {"format": FORMAT, "rank": self.form.rank, **said}
        write_text(folder / ADAPTER, json.dumps(settings, indent=1) + "\n")


class FullWeights(nn.Module):
    """float32 masters of all weights of a base and of a mask embedding: the paper's fine-tuning,
    with the texts and masks of an adapter's training."""

    sampler = None

    def __init__(self, base: Base) -> None:
        super().__init__()
        self._base = base
        device = torch.get_default_device()
        self.weights = nn.ParameterList(
            nn.Parameter(weight.to(device, torch.float32)) for weight in base.weights.values()
        )
        embedding = base.weights["model.embed_tokens.weight"].float().mean(0, keepdim=True)
        self.mask_embedding = nn.Parameter(embedding.to(device))

    def backbone(self, dtype: torch.dtype) -> Backbone:
        """Return the current model, through which gradients reach the masters."""
        weights = dict(zip(self._base.weights, self.weights, strict=True))
        return Backbone(replace(self._base, weights=weights), dtype)

    def embedding(self, masks: int) -> Tensor:
        """Return the embedding of each mask [masks, H], all equal."""
        return self.mask_embedding.expand(masks, -1)

    def update(self, _dtype: torch.dtype) -> None:
        """Return None: masks use the weights of real tokens."""


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
        """Return scores [N, C], float32. previous, h: [N, H], h float32; candidates: [N, C, H],
        rows of E; logits: of the candidates, [N, C]."""
        direction: Tensor = self.second(F.silu(self.first(torch.cat([previous.float(), h], -1))))
        return logits.float() + (candidates.float() @ direction[:, :, None])[..., 0]


def in_files(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Distribute tensors, in order, over files below ``MAX_FILE_BYTES``."""
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        size += tensor.nbytes
        if size > MAX_FILE_BYTES and files[-1]:
            files.append({})
            size = tensor.nbytes
        files[-1][name] = tensor.contiguous()
    return files
