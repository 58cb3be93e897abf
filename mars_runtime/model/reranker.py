"""The sampler head of an adapter: reranks the best candidates of a mask, given the token before it.

score(c) = log p(c) + E[c] . W2 silu(W1 [E[previous]; h]), where E is the base model's embedding and
h the normed hidden state of the mask. The token chosen for one mask of a group is ``previous`` for
the next. ``native/rank.h`` is the native version. Related: the samplers of arXiv 2507.11851.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.model.forward import MaskGroup
from mars_runtime.model.threads import one_thread
from mars_runtime.model.transfers import to_device

ROWS_AT_ONCE = 4096
MIN_SCALE = 1e-30  # minimum scale, so that a row of zeros is not divided by zero

Embed = Callable[[Tensor], Tensor]  # of token ids [N]: the base's embeddings, float32 [N, H]


@dataclass(frozen=True, slots=True)
class SamplerWeights:
    """first: W1 [width, 2 H], for the embedding, then the hidden state. second: W2 [H, width]."""

    first: Tensor
    second: Tensor


@dataclass(frozen=True, slots=True)
class QuantizedTable:
    """values: int8 [V, width]. scales: [V, 1]."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, matrix: Tensor, embed: Embed, vocab_size: int) -> QuantizedTable:
        """Quantise the products of all embeddings and ``matrix`` [H, width]."""
        values, scales = [], []
        for ids in torch.arange(vocab_size, device=matrix.device).split(ROWS_AT_ONCE):  # type: ignore[no-untyped-call]
            dense = embed(ids) @ matrix
            scales.append(dense.abs().amax(1, keepdim=True).clamp_(min=MIN_SCALE) / 127)
            values.append((dense / scales[-1]).round_().to(torch.int8))
        return cls(torch.cat(values), torch.cat(scales))

    def rows(self, ids: Tensor) -> Tensor:
        return self.values.index_select(0, ids).float().mul_(self.scales.index_select(0, ids))


@dataclass(frozen=True, slots=True)
class Tables:
    """The products of all embeddings with both layers, and W1 for hidden states, [width, H]."""

    previous: QuantizedTable
    candidate: QuantizedTable
    state: Tensor

    @classmethod
    def of(cls, sampler: SamplerWeights, embed: Embed, vocab_size: int) -> Tables:
        hidden = len(sampler.second)
        return cls(
            QuantizedTable.of(sampler.first[:, :hidden].t(), embed, vocab_size),
            QuantizedTable.of(sampler.second, embed, vocab_size),
            sampler.first[:, hidden:],
        )


class Reranker:
    def __init__(self, tables: Tables, final_norm: Tensor, eps: float) -> None:
        self._tables, self._final_norm, self._eps = tables, final_norm, eps

    def rank(self, states: Tensor, groups: Sequence[MaskGroup], best: Tensor, ids: Tensor) -> None:
        """Changes best and ids, [R, S, C]: probabilities, highest first, and int64 ids. states: [R,
        S, H], before the final norm.
        """
        slots = states.shape[1]
        flat_states, flat_best, flat_ids = (part.flatten(0, 1) for part in (states, best, ids))
        with one_thread():
            for masks, before in _mask_steps(groups, slots, states.device):
                prepared = self._prepare(flat_states[masks])
                probabilities, order = self._ranked(
                    prepared, flat_ids[before, 0], flat_ids[masks], flat_best[masks]
                )
                flat_best.index_copy_(0, masks, probabilities)
                flat_ids.index_copy_(0, masks, flat_ids[masks].gather(-1, order))

    def _prepare(self, states: Tensor) -> Tensor:
        normed = F.rms_norm(states.float(), self._final_norm.shape, self._final_norm, self._eps)
        return normed @ self._tables.state.t()

    def _ranked(
        self, prepared: Tensor, previous: Tensor, ids: Tensor, probabilities: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Redistribute the total probability by scores; also return the order of the candidates."""
        inner = F.silu(self._tables.previous.rows(previous).add_(prepared))
        candidates = self._tables.candidate.rows(ids.flatten()).view(*ids.shape, -1)
        scores = probabilities.log() + candidates.mul_(inner.unsqueeze(1)).sum(-1)
        shared = scores.softmax(-1) * probabilities.sum(-1, keepdim=True)
        ranked, order = shared.sort(stable=True, dim=-1, descending=True)
        return ranked.clamp_(max=1.0), order


def _mask_steps(
    groups: Sequence[MaskGroup], slots: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all first masks, all second masks ...: the slots, int64 [N], of the masks and of the
    predictions before them, counted across all rows.
    """
    for position in range(max((len(group.masks) for group in groups), default=0)):
        live = [group for group in groups if position < len(group.masks)]
        yield (
            to_device([group.row * slots + group.masks[position] for group in live], device),
            to_device(
                [group.row * slots + _slot_before(group, position) for group in live], device
            ),
        )


def _slot_before(group: MaskGroup, position: int) -> int:
    return group.masks[position - 1] if position else group.before
