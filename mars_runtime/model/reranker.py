"""Sampler head of an adapter: reranks a mask's best candidates, given the token before.

score(c) = log p(c) + E[c] . W2 silu(W1 [E[previous]; h]), with the base's embedding E and the
mask's normed hidden state h. Related: the samplers of arXiv 2507.11851. Masks of a group are filled
from left to right, each given the choice for the one before; no further forward is needed. The
module works on states and candidates. ``native/rank.h`` is the native version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.model.forward import MaskGroup
from mars_runtime.transfers import to_device

ROWS_AT_ONCE = 4096
TINY = 1e-30  # replaces the scale of a row of zeros

Embed = Callable[[Tensor], Tensor]
"""Returns the rows [N, H] of the base's embedding, in float32, for ids [N]."""


@dataclass(frozen=True, slots=True)
class SamplerWeights:
    """Weights of a sampler head.

    first: W1 [width, 2 H], for the embedding, then the state. second: W2 [H, width].
    """

    first: Tensor
    second: Tensor


@dataclass(frozen=True, slots=True)
class QuantizedTable:
    """Rows for all tokens in 8 bits: values int8 [V, width], with a scale per row [V, 1]."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, matrix: Tensor, embed: Embed, vocab_size: int) -> QuantizedTable:
        """Compute E @ matrix, [H, width], in chunks of the vocabulary."""
        values, scales = [], []
        for ids in torch.arange(vocab_size, device=matrix.device).split(ROWS_AT_ONCE):  # type: ignore[no-untyped-call]
            dense = embed(ids) @ matrix
            scales.append(dense.abs().amax(1, keepdim=True).clamp_(min=TINY) / 127)
            values.append((dense / scales[-1]).round_().to(torch.int8))
        return cls(torch.cat(values), torch.cat(scales))

    def rows(self, ids: Tensor) -> Tensor:
        """Return rows [N, width] in float32."""
        return self.values.index_select(0, ids).float().mul_(self.scales.index_select(0, ids))


@dataclass(frozen=True, slots=True)
class Tables:
    """Precomputed products of the embedding with both layers of a sampler.

    They are the same in every forward, so they are computed once for the whole vocabulary;
    reranking then reads some rows and multiplies by one matrix. state: the half of W1 for states,
    [width, H].
    """

    previous: QuantizedTable
    candidate: QuantizedTable
    state: Tensor

    @classmethod
    def of(cls, sampler: SamplerWeights, embed: Embed, vocab_size: int) -> Tables:
        """Compute the tables of a sampler with the embedding of its base."""
        hidden = len(sampler.second)
        return cls(
            QuantizedTable.of(sampler.first[:, :hidden].t(), embed, vocab_size),
            QuantizedTable.of(sampler.second, embed, vocab_size),
            sampler.first[:, hidden:],
        )


class Reranker:
    """A sampler head behind the final norm of its base."""

    def __init__(self, tables: Tables, final_norm: Tensor, eps: float) -> None:
        self._tables, self._final_norm, self._eps = tables, final_norm, eps

    def rank(self, states: Tensor, groups: Sequence[MaskGroup], best: Tensor, ids: Tensor) -> None:
        """Rerank the candidates of the groups' masks in place, all groups of all rows at once.

        states: [R, S, H] before the norm. best: [R, S, C] probabilities, highest first. ids: [R, S,
        C] int64, the token of each. Nothing is read back to the host.
        """
        slots = states.shape[1]
        flat_states, flat_best, flat_ids = (part.flatten(0, 1) for part in (states, best, ids))
        with one_thread():
            for places, before in _turns(groups, slots, states.device):
                prepared = self._prepare(flat_states[places])
                chances, order = self._ranked(
                    prepared, flat_ids[before, 0], flat_ids[places], flat_best[places]
                )
                flat_best.index_copy_(0, places, chances)
                flat_ids.index_copy_(0, places, flat_ids[places].gather(-1, order))

    def _prepare(self, states: Tensor) -> Tensor:
        """Return the contribution of masks [N, H] to the inner layer, [N, width]."""
        normed = F.rms_norm(states.float(), self._final_norm.shape, self._final_norm, self._eps)
        return normed @ self._tables.state.t()

    def _ranked(
        self, prepared: Tensor, previous: Tensor, ids: Tensor, chances: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Redistribute the probability of candidates ``ids`` [N, C] among them.

        Returns the new probabilities, highest first, and their order. An impossible candidate stays
        impossible.
        """
        inner = F.silu(self._tables.previous.rows(previous).add_(prepared))
        candidates = self._tables.candidate.rows(ids.flatten()).view(*ids.shape, -1)
        scores = chances.log() + candidates.mul_(inner.unsqueeze(1)).sum(-1)
        shared = scores.softmax(-1) * chances.sum(-1, keepdim=True)
        ranked, order = shared.sort(stable=True, dim=-1, descending=True)
        return ranked.clamp_(max=1.0), order


def _turns(
    groups: Sequence[MaskGroup], slots: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, for each place in a group, the slots at this place and the slots before them.

    Both are int64 [N], indices among the slots of all rows; groups that are too short are skipped.
    """
    for position in range(max((len(group.masks) for group in groups), default=0)):
        live = [group for group in groups if position < len(group.masks)]
        yield (
            to_device([group.row * slots + group.masks[position] for group in live], device),
            to_device(
                [group.row * slots + _slot_before(group, position) for group in live], device
            ),
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread: further ones keep spinning after a small product, and slow down the
    next forward."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _slot_before(group: MaskGroup, position: int) -> int:
    return group.masks[position - 1] if position else group.before
