"""Add low-rank updates (LoRA) and a trainable mask embedding to a transformers model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mars_runtime.lab.ablation.variants import Lora

ALPHA = 2.0
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class MaskEmbedding(nn.Module):
    """The embedding of the base model, with a trainable row for the mask.

    ``is_mask`` records the positions of the masks in the last input.
    """

    def __init__(self, base: nn.Embedding, mask_id: int) -> None:
        super().__init__()
        self.base, self.mask_id = base, mask_id
        self.row = nn.Parameter(base.weight[mask_id].detach().clone())
        self.is_mask = torch.zeros(1, 1, 1, dtype=torch.bool)

    def forward(self, ids: Tensor) -> Tensor:
        """Return embeddings [R, Q, H] for ids [R, Q]."""
        self.is_mask = (ids == self.mask_id).unsqueeze(-1)
        return torch.where(self.is_mask, self.row, self.base(ids))


class LoraLinear(nn.Module):
    """A frozen projection with a low-rank update, which is zero at first.

    gate: the embedding of the model; the update is then applied only at masks. With None, the
    update is applied to all inputs.
    """

    def __init__(self, base: nn.Linear, rank: int, gate: MaskEmbedding | None) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * base.in_features**-0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self._gate = [gate]  # a list prevents torch from registering the gate as a submodule

    def forward(self, x: Tensor) -> Tensor:
        """Return the projection of ``x`` plus the update (with a gate, only at masks)."""
        update = ALPHA * (x @ self.a.t() @ self.b.t())
        gate = self._gate[0]
        y: Tensor = self.base(x)
        return y + (update if gate is None else update * gate.is_mask)


def put_lora(model: Any, lora: Lora, mask_id: int, seed: int) -> None:
    """Freeze all weights of ``model``, and add trainable updates to its projections."""
    torch.manual_seed(seed)
    for weight in model.parameters():
        weight.requires_grad_(False)
    embedding = MaskEmbedding(model.model.embed_tokens, mask_id)
    model.model.embed_tokens = embedding
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name in PROJECTIONS:
                if hasattr(part, name):
                    gate = embedding if lora.is_gated else None
                    setattr(part, name, LoraLinear(getattr(part, name), lora.rank, gate))
