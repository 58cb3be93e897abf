"""The input of a training forward pass: token ids, attention mask and targets (paper, section 3.2).
The prompt is block -1 and only in the clean stream. In stage ``mars`` all positions of a noisy
block are masks; a mask predicts the next token and attends to its block up to itself. In stage
``block_diffusion`` a random share of a block is masks; a mask predicts its own token and attends to
its whole block."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.lab.training.data import TrainingExample

WIDTH_STEP = 32
"""Widths of batches are multiples of this, which limits the number of shapes to compile."""
NO_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Texts, padded on the right. ids: [R, T]; response_start, length: [R]."""

    ids: Tensor
    response_start: Tensor
    length: Tensor

    @classmethod
    def of(cls, examples: Sequence[TrainingExample], pad: int) -> TokenBatch:
        width = _whole_width(max(len(e.ids) for e in examples))
        ids = torch.full((len(examples), width), pad)
        for row, example in enumerate(examples):
            ids[row, : len(example.ids)] = torch.tensor(example.ids)
        starts = torch.tensor([e.response_start for e in examples])
        return cls(ids, starts, torch.tensor([len(e.ids) for e in examples]))


@dataclass(frozen=True, slots=True)
class TwoStreams:
    """The clean stream (T positions) and the noisy stream (N), joined. ids, positions, targets
    (-100 for none): [R, T + N]. mask: [R, 1, T + N, T + N], True where attention is allowed."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor
    num_clean: int

    @classmethod
    def of(
        cls,
        examples: Sequence[TrainingExample],
        block_size: int,
        mask_id: int,
        eos_id: int,
        rng: random.Random,
        masked_share: float = 1.0,
        *,
        is_diffusion: bool = False,
    ) -> TwoStreams:
        """The size of each row's first block is random, and the response is padded with EOS to
        whole blocks. The noisy stream has a share ``masked_share`` of the blocks, at least one."""
        first = [rng.randint(1, block_size) for _ in examples]
        rows = zip(examples, first, strict=True)
        padded = [_fill_block(example, f, block_size, eos_id) for example, f in rows]
        batch = TokenBatch.of(padded, eos_id)
        blocks = _draw_blocks(batch, first, block_size, masked_share, rng)
        at, is_mask = _positions(blocks, batch.length.tolist(), rng, is_diffusion)
        following, clean_targets, own_targets = _targets(batch)
        width = batch.ids.shape[1]
        length = max(width, int(at.max()) + 1)
        block = block_ids(length, batch.response_start, torch.tensor(first), block_size)
        noisy_block = block.gather(1, at).where(at < batch.length[:, None], NO_BLOCK)
        mask = two_stream_mask(block[:, :width], noisy_block, at, is_causal=not is_diffusion)
        noisy_targets = (own_targets if is_diffusion else following).gather(1, at)
        noisy_ids = F.pad(batch.ids, (0, 1), value=mask_id).gather(1, at)
        return cls(
            ids=torch.cat([batch.ids[:, :width], noisy_ids.masked_fill(is_mask, mask_id)], 1),
            positions=torch.cat([torch.arange(width).expand(len(padded), -1), at], 1),
            mask=mask,
            targets=torch.cat([clean_targets[:, :width], noisy_targets.where(is_mask, -100)], 1),
            num_clean=width,
        )


def _targets(batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return [R, T + 1] each: the next token; the next token of the response; the response's token
    at the position itself."""
    ids = F.pad(batch.ids, (0, 2), value=-100)
    position = torch.arange(ids.shape[1] - 1)
    start, length = batch.response_start[:, None], batch.length[:, None]
    following = ids[:, 1:].where(position < length - 1, -100)
    own_targets = ids[:, :-1].where((position >= start) & (position < length), -100)
    return following, following.where(position >= start - 1, -100), own_targets


def _draw_blocks(
    batch: TokenBatch,
    first: Sequence[int],
    block_size: int,
    share: float,
    rng: random.Random,
) -> list[list[range]]:
    rows = []
    spans = zip(batch.response_start.tolist(), batch.length.tolist(), first, strict=True)
    for start, length, first_block in spans:
        bounds = [start, *range(start + first_block, length, block_size), length]
        blocks = [range(begin, end) for begin, end in pairwise(bounds)]
        count = max(1, round(share * len(blocks)))
        rows.append([blocks[index] for index in sorted(rng.sample(range(len(blocks)), count))])
    return rows


def _positions(
    rows: list[list[range]], lengths: list[int], rng: random.Random, is_diffusion: bool
) -> tuple[Tensor, Tensor]:
    """Return positions, and whether each is a mask, both [R, N]."""
    num_noisy = _whole_width(max(sum(map(len, blocks)) for blocks in rows))
    at, is_mask = [], []
    for blocks, length in zip(rows, lengths, strict=True):
        missing = num_noisy - sum(map(len, blocks))
        at.append([position for block in blocks for position in block] + [length] * missing)
        masked = [
            [True] * len(block) if not is_diffusion else _random_masks(len(block), rng)
            for block in blocks
        ]
        is_mask.append([*chain(*masked), *[True] * missing])
    return torch.tensor(at), torch.tensor(is_mask)


def _random_masks(size: int, rng: random.Random) -> list[bool]:
    level, always_masked = rng.random(), rng.randrange(size)
    return [position == always_masked or rng.random() < level for position in range(size)]


def _fill_block(
    example: TrainingExample, first_block: int, block_size: int, eos_id: int
) -> TrainingExample:
    """A response that was cut gets no EOS."""
    if example.ids[-1] != eos_id:
        return example
    missing = (first_block - (len(example.ids) - example.response_start)) % block_size
    return TrainingExample(example.ids + (eos_id,) * missing, example.response_start)


def _whole_width(width: int) -> int:
    return -(-width // WIDTH_STEP) * WIDTH_STEP


def block_ids(length: int, response_start: Tensor, first_block: Tensor, block_size: int) -> Tensor:
    """first_block: [R], the random size (1..B) of the first block, so that blocks start at all
    positions, as in decoding. Returns [R, length]."""
    offset = torch.arange(length) - response_start[:, None]
    block = (offset + block_size - first_block[:, None]).div(block_size, rounding_mode="floor")
    return torch.where(offset < 0, -1, block)


def two_stream_mask(
    clean_block: Tensor, noisy_block: Tensor, noisy_position: Tensor, *, is_causal: bool = True
) -> Tensor:
    """Return the attention mask [R, 1, T + N, T + N]. A clean position attends to clean positions
    up to itself; a noisy one to the clean positions of earlier blocks and to its own block: up to
    itself if ``is_causal``, otherwise all. clean_block: [R, T]. noisy_block, noisy_position: [R,
    N]."""
    rows, length = clean_block.shape
    num_noisy = noisy_block.shape[1]
    position = torch.arange(length)
    clean_clean = (position[None, :] <= position[:, None]).expand(rows, length, length)
    clean_noisy = torch.zeros(rows, length, num_noisy, dtype=torch.bool)
    noisy_clean = clean_block[:, None, :] < noisy_block[:, :, None]
    noisy_noisy = noisy_block[:, None, :] == noisy_block[:, :, None]
    if is_causal:
        noisy_noisy &= noisy_position[:, None, :] <= noisy_position[:, :, None]
    top = torch.cat([clean_clean, clean_noisy], dim=2)
    bottom = torch.cat([noisy_clean, noisy_noisy], dim=2)
    return torch.cat([top, bottom], dim=1)[:, None]
