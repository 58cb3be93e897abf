"""The trainable parameters of an adapter: low-rank updates, mask embeddings, sampler head.

``FullWeights`` trains all weights of the base instead, for comparison, and is not saved.
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

from mars_runtime.files.outputs import write_text
from mars_runtime.lab.training.backbone import Backbone, Base, Update
from mars_runtime.model.adapter import FORMAT, PARTS, read_tensors
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.files import ADAPTER

UPDATE_FACTOR = 2.0
"""Factor of every update. Saved files contain ``b`` multiplied by this factor."""
MAX_FILE_BYTES = 9_500_000
MAX_CANDIDATES = 32
SAMPLER_WIDTH = 512


@dataclass(frozen=True, slots=True)
class Form:
    """The options that determine the parameters of an adapter.

    - rank: rank of the updates of o and down; the joined matrices qkv and gate_up have twice this
      rank.
    - embeddings: number of mask embeddings; 1, or one for each position in a group.
    - full: whether to fine-tune all weights of the base instead of an adapter.
    """

    rank: int
    embeddings: int = 1
    sampler: bool = False
    full: bool = False

    def ranks(self) -> dict[str, int]:
        return {"qkv": 2 * self.rank, "o": self.rank, "gate_up": 2 * self.rank, "down": self.rank}


class Parameters(nn.Module):
    """The float32 parameters of an adapter. The update is zero at first."""

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
        """Return the embeddings [masks, H] of a group of masks, of which the last ones may share
        one.
        """
        return self.mask_embedding[torch.arange(masks).clamp(max=self.form.embeddings - 1)]

    def update(self, dtype: torch.dtype) -> Update:
        """Return the update of ``Backbone``'s matrix products, which have the dtype ``dtype``."""
        a = {name: weight.to(dtype) for name, weight in self.a.items()}
        b = {name: (UPDATE_FACTOR * weight).to(dtype) for name, weight in self.b.items()}

        def added(index: int, part: str, x: Tensor, y: Tensor) -> Tensor:
            name = f"{index}_{part}"
            return y.addmm_(F.linear(x, a[name]), b[name].t())

        return added

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Load a saved adapter with the same ``Form``. Raises CheckpointError."""
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
        """Write the parameters in bfloat16, and ``adapter.json``. Each file is replaced atomically;
        other weight files are removed.
        """
        tensors = {
            name: (UPDATE_FACTOR * tensor if name.endswith(".b") else tensor).bfloat16()
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
        settings = {"format": FORMAT, "rank": self.form.rank, **metadata}
        write_text(folder / ADAPTER, json.dumps(settings, indent=1) + "\n")


class FullWeights(nn.Module):
    """All weights of a base and a mask embedding as trainable float32 parameters, fine-tuned as in
    the paper on the texts of adapter training.
    """

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
        """Return a backbone with the current weights. Gradients flow back to the parameters."""
        weights = dict(zip(self._base.weights, self.weights, strict=True))
        return Backbone(replace(self._base, weights=weights), dtype)

    def embedding(self, masks: int) -> Tensor:
        return self.mask_embedding.expand(masks, -1)

    def update(self, _dtype: torch.dtype) -> None:
        """Return None, because masks and real tokens use the same weights."""


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
        """Return the float32 scores [N, C]. previous: [N, H], embeddings. h: [N, H], normed hidden
        states. candidates: [N, C, H], embeddings. logits: [N, C].
        """
        direction: Tensor = self.second(F.silu(self.first(torch.cat([previous.float(), h], -1))))
        return logits.float() + (candidates.float() @ direction[:, :, None])[..., 0]


def in_files(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        size += tensor.nbytes
        if size > MAX_FILE_BYTES and files[-1]:
            files.append({})
            size = tensor.nbytes
        files[-1][name] = tensor.contiguous()
    return files
