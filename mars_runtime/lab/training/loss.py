"""Losses of the two stages on one batch. Knows transformers' model, not optimizers or files.

Logits are right-shifted in both streams: the slot at t predicts the token at t + 1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.data import Example
from mars_runtime.lab.training.masks import block_ids, two_stream_mask

WIDTH_STEP = 32
"""Batches are padded to a multiple of this, so that few shapes are compiled."""


@dataclass(frozen=True, slots=True)
class Batch:
    """ids: [R, T] padded with ``pad``; response_start, length: [R]; all int64."""

    ids: Tensor
    response_start: Tensor
    length: Tensor

    @classmethod
    def of(cls, examples: Sequence[Example], pad: int) -> Batch:
        """Right-padded rows, the width rounded up."""
        width = -(-max(len(e.ids) for e in examples) // WIDTH_STEP) * WIDTH_STEP
        ids = torch.full((len(examples), width), pad)
        for row, example in enumerate(examples):
            ids[row, : len(example.ids)] = torch.tensor(example.ids)
        starts = torch.tensor([e.response_start for e in examples])
        return cls(ids, starts, torch.tensor([len(e.ids) for e in examples]))

    def to(self, device: torch.device) -> Batch:
        """The same batch on ``device``."""
        return Batch(self.ids.to(device), self.response_start.to(device), self.length.to(device))


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


@dataclass(frozen=True, slots=True)
class TwoStreams:
    """Both streams of a batch in one sequence: [clean T | noisy N].

    ids, positions: [R, T + N]; mask: [R, 1, T + N, T + N]; targets: [R, T + N], -100 where a slot
    has nothing to predict; num_clean: T. The noisy stream holds the masks of the blocks that were
    drawn: blocks do not see each other's masks, so leaving one out moves no logit of the others.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor
    num_clean: int

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        block_size: int,
        mask_id: int,
        eos_id: int,
        rng: random.Random,
        masked_share: float = 1.0,
    ) -> TwoStreams:
        """Draw each row's first block, pad its response with EOS to a whole block, and mask
        ``masked_share`` of its blocks (at least one) beside the clean stream."""
        first = [rng.randint(1, block_size) for _ in examples]
        rows = zip(examples, first, strict=True)
        padded = [_fill_block(example, f, block_size, eos_id) for example, f in rows]
        batch = Batch.of(padded, eos_id)
        width = batch.ids.shape[1]
        noisy_at = _masked_positions(batch, first, block_size, masked_share, rng)
        num_noisy = noisy_at.shape[1]
        block = block_ids(width + num_noisy, batch.response_start, torch.tensor(first), block_size)
        mask = two_stream_mask(block[:, :width], block.gather(1, noisy_at), noisy_at)
        following = torch.cat([batch.ids[:, 1:], torch.full((len(padded), num_noisy + 1), -100)], 1)
        slot = torch.arange(following.shape[1])
        in_response = slot < batch.length[:, None] - 1
        following = torch.where(in_response, following, -100)
        clean = torch.where(slot >= batch.response_start[:, None] - 1, following, -100)[:, :width]
        return cls(
            ids=torch.cat([batch.ids, torch.full_like(noisy_at, mask_id)], 1),
            positions=torch.cat([torch.arange(width).expand(len(padded), -1), noisy_at], 1),
            mask=mask,
            targets=torch.cat([clean, following.gather(1, noisy_at)], 1),
            num_clean=width,
        )

    def to(self, device: torch.device) -> TwoStreams:
        """The same streams on ``device``."""
        return TwoStreams(
            self.ids.to(device),
            self.positions.to(device),
            self.mask.to(device),
            self.targets.to(device),
            self.num_clean,
        )


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


def _fill_block(example: Example, first_block: int, block_size: int, eos_id: int) -> Example:
    """Pad a response that ends in EOS with EOS to a whole block; leave one that was cut."""
    if example.ids[-1] != eos_id:
        return example
    missing = (first_block - (len(example.ids) - example.response_start)) % block_size
    return Example(example.ids + (eos_id,) * missing, example.response_start)


def _masked_positions(
    batch: Batch, first: Sequence[int], block_size: int, share: float, rng: random.Random
) -> Tensor:
    """Positions of each row's masks, [R, N]: those of the drawn blocks in order, and then the
    row's length, where nothing is to be predicted."""
    rows: list[list[int]] = []
    spans = zip(batch.response_start.tolist(), batch.length.tolist(), first, strict=True)
    for start, length, first_block in spans:
        bounds = [start, *range(start + first_block, length, block_size), length]
        blocks = [range(begin, end) for begin, end in pairwise(bounds)]
        drawn = sorted(rng.sample(range(len(blocks)), max(1, round(share * len(blocks)))))
        rows.append([position for block in drawn for position in blocks[block]])
    num_noisy = -(-max(map(len, rows)) // WIDTH_STEP) * WIDTH_STEP
    lengths = batch.length.tolist()
    padded = [row + [end] * (num_noisy - len(row)) for row, end in zip(rows, lengths, strict=True)]
    return torch.tensor(padded)


def _cross_entropy(model: Any, hidden: Tensor, targets: Tensor) -> Tensor:
    """Mean over the chosen slots; the head is applied to these alone. hidden: [M, H]."""
    return F.cross_entropy(model.lm_head(hidden).float(), targets)
