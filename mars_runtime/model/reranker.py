"""The sampler head of an adapter: ranks a mask's best candidates anew, knowing the token before.

score(c) = log p(c) + E[c] . W2 silu(W1 [E[previous]; h]), for the base's embedding E and the mask's
normed hidden state h. Relatives: the samplers of arXiv 2507.11851. Masks of a group are filled from
left to right, each knowing what was chosen for the one before; no further forward is needed. Knows
states and candidates; knows no logits or decoding. ``native/rank.h`` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.events import Proposal
from mars_runtime.model.forward import MaskGroup
from mars_runtime.settings import Metric

ROWS_AT_ONCE = 4096
TINY = 1e-30  # in place of the scale of a row of zeros

Embed = Callable[[Tensor], Tensor]
"""Rows [N, H] float32 of the base's embedding for ids [N]."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """first: W1 [width, 2 H], for the embedding and then the state; second: W2 [H, width]."""

    first: Tensor
    second: Tensor


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for all tokens in 8 bits: values int8 [V, width], a scale for each row [V, 1]."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, matrix: Tensor, embed: Embed, vocab_size: int) -> Table:
        """E @ matrix, [H, width], a part of the vocabulary at a time."""
        values, scales = [], []
        for ids in torch.arange(vocab_size, device=matrix.device).split(ROWS_AT_ONCE):  # type: ignore[no-untyped-call]
            dense = embed(ids) @ matrix
            scales.append(dense.abs().amax(1, keepdim=True).clamp_(min=TINY) / 127)
            values.append((dense / scales[-1]).round_().to(torch.int8))
        return cls(torch.cat(values), torch.cat(scales))

    def rows(self, ids: Tensor) -> Tensor:
        """[N, width] float32."""
        return self.values.index_select(0, ids).float().mul_(self.scales.index_select(0, ids))


@dataclass(frozen=True, slots=True)
class Tables:
    """What either layer makes of an embedding is the same at every forward, so both are worked out
    once for the whole vocabulary: ranking then reads some rows and multiplies a single matrix.

    state: the half of W1 for states, [width, H].
    """

    previous: Table
    candidate: Table
    state: Tensor

    @classmethod
    def of(cls, sampler: Sampler, embed: Embed, vocab_size: int) -> Tables:
        """A sampler over the embedding of its base."""
        hidden = len(sampler.second)
        return cls(
            Table.of(sampler.first[:, :hidden].t(), embed, vocab_size),
            Table.of(sampler.second, embed, vocab_size),
            sampler.first[:, hidden:],
        )


class Reranker:
    """A sampler head behind the final norm of its base."""

    def __init__(self, tables: Tables, final_norm: Tensor, eps: float) -> None:
        self._tables, self._final_norm, self._eps = tables, final_norm, eps

    def rank(
        self,
        hidden: Tensor,
        found: Sequence[Sequence[Proposal]],
        groups: Sequence[MaskGroup],
        metrics: Sequence[Metric],
    ) -> list[list[Proposal]]:
        """``found`` with the masks of the groups chosen anew, all groups of all rows at once.

        hidden: states [R, S, H] before the norm of the slots that gave ``found``.
        """
        ranked = [list(slots) for slots in found]
        with one_thread():
            for position in range(max((len(group.masks) for group in groups), default=0)):
                live = [group for group in groups if position < len(group.masks)]
                rows = [group.row for group in live]
                slots = [group.masks[position] for group in live]
                chosen = self._choose(
                    self._prepare(hidden[rows, slots]),
                    [ranked[group.row][_slot_before(group, position)].token for group in live],
                    [ranked[row][slot] for row, slot in zip(rows, slots, strict=True)],
                    [metrics[row] for row in rows],
                )
                for row, slot, proposal in zip(rows, slots, chosen, strict=True):
                    ranked[row][slot] = proposal
        return ranked

    def _prepare(self, states: Tensor) -> Tensor:
        """What masks [N, H] give to the inner layer, [N, width]."""
        normed = F.rms_norm(states.float(), self._final_norm.shape, self._final_norm, self._eps)
        return normed @ self._tables.state.t()

    def _choose(
        self,
        prepared: Tensor,
        previous: Sequence[int],
        proposals: Sequence[Proposal],
        metrics: Sequence[Metric],
    ) -> list[Proposal]:
        """Their candidates in a new order, which share their probability anew."""
        pairs = [_candidates(p, metric) for p, metric in zip(proposals, metrics, strict=True)]
        width = max(map(len, pairs))
        filled = [[*some, *[(0, 0.0)] * (width - len(some))] for some in pairs]
        ids = torch.tensor([[token for token, _ in some] for some in filled])
        chances = torch.tensor([[chance for _, chance in some] for some in filled])
        before = self._tables.previous.rows(torch.tensor(previous))
        inner = F.silu(before.add_(prepared))
        candidates = self._tables.candidate.rows(ids.flatten()).view(*ids.shape, -1)
        scores = chances.log() + candidates.mul_(inner[:, None]).sum(-1)
        anew = scores.softmax(-1) * chances.sum(-1, keepdim=True)
        ranked = zip(pairs, anew.tolist(), metrics, strict=True)
        return [_ranked([token for token, _ in some], new, metric) for some, new, metric in ranked]


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads of torch go on spinning after a small product, on the cores of the next forward."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _slot_before(group: MaskGroup, position: int) -> int:
    return group.masks[position - 1] if position else group.before


def _candidates(proposal: Proposal, metric: Metric) -> list[tuple[int, float]]:
    """Every candidate that is known, with its probability."""
    most = proposal.confidence
    if metric == "margin" and proposal.runners_up:
        most += proposal.runners_up[0][1]
    return [(proposal.token, most), *proposal.runners_up]


def _ranked(tokens: list[int], chances: list[float], metric: Metric) -> Proposal:
    pairs = zip(tokens, chances, strict=False)  # behind the tokens are places that none took
    (token, most), *others = sorted(pairs, key=lambda pair: -pair[1])
    if metric == "margin" and others:
        most -= others[0][1]
    return Proposal(token, min(1.0, most), tuple(others))
