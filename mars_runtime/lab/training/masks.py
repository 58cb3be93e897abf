"""The two-stream attention mask of stages ``mars`` and ``block_diffusion`` (paper section 3.2).

Knows positions and blocks only. Prompt positions form block -1 and have no noisy twin: a noisy
prompt token would carry the values of the clean one, so leaving it out changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor


def block_ids(length: int, response_start: Tensor, first_block: Tensor, block_size: int) -> Tensor:
    """Block of every position. response_start, first_block: [R] int64; result [R, length].

    The first block of a row holds ``first_block`` (1..B) positions of the response and the others
    ``block_size``, so that over rows a block, and later a cursor, may begin anywhere.
    """
    place = torch.arange(length) - response_start[:, None]
    block = (place + block_size - first_block[:, None]).div(block_size, rounding_mode="floor")
    return torch.where(place < 0, -1, block)


def two_stream_mask(
    clean_block: Tensor, noisy_block: Tensor, noisy_position: Tensor, *, is_causal: bool = True
) -> Tensor:
    """Who may see whom: True where query (row) may attend to key (column).

    clean_block: [R, T]; noisy_block, noisy_position: [R, N], position of each mask in the
    sequence. Result [R, 1, T + N, T + N] bool, clean stream first.

    clean i sees clean j <= i; noisy i sees noisy j <= i of its own block, and clean j of earlier
    blocks; clean never sees noisy. Not ``is_causal``: noisy i sees all noisy j of its own block.
    """
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
