"""Losses of the stages on one batch. Knows transformers' model and the streams, no optimizers or
files.

Logits of the clean stream are right-shifted: the slot at t predicts the token at t + 1.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.streams import Batch, TwoStreams


def ar_loss(model: Any, batch: Batch, prompt_weight: float) -> dict[str, Tensor]:
    """Cross entropy of the response tokens, EOS included, plus ``prompt_weight`` times that of the
    prompt tokens (stage ``ar``)."""
    hidden = model.model(input_ids=batch.ids).last_hidden_state[:, :-1]
    slot = torch.arange(hidden.shape[1], device=batch.ids.device)
    is_response = slot >= batch.response_start[:, None] - 1
    is_real = slot < batch.length[:, None] - 1
    following = batch.ids[:, 1:]
    clean, prompt = (
        _cross_entropy(model, hidden[chosen], following[chosen])
        for chosen in (is_real & is_response, is_real & ~is_response)
    )
    loss = clean + prompt_weight * prompt
    return {"loss": loss, "clean": clean.detach(), "prompt": prompt.detach()}


def mars_loss(model: Any, streams: TwoStreams, clean_weight: float) -> dict[str, Tensor]:
    """CE(noisy) + clean_weight * CE(clean), one forward over both streams (stage ``mars``)."""
    hidden = model.model(
        input_ids=streams.ids,
        attention_mask=_additive(streams.mask),
        position_ids=streams.positions,
    ).last_hidden_state
    losses = []
    for part in (slice(0, streams.num_clean), slice(streams.num_clean, None)):
        targets = streams.targets[:, part]
        chosen = targets >= 0
        losses.append(_cross_entropy(model, hidden[:, part][chosen], targets[chosen]))
    clean, noisy = losses
    return {
        "loss": noisy + clean_weight * clean,
        "clean": clean.detach(),
        "noisy": noisy.detach(),
    }


def _additive(mask: Tensor) -> Tensor:
    """0 where attention is allowed, else the least float: the form every attention accepts."""
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, lowest)


def _cross_entropy(model: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    """Mean over the chosen slots, 0 where none is (a random share of masks can be none); the head
    is applied to these alone. hidden: [M, H]."""
    loss = F.cross_entropy(model.lm_head(hidden).float(), targets, reduction="sum")
    return loss / max(1, len(targets))
