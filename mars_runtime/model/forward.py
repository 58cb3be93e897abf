"""The interface of models, and the inputs of a forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mars_runtime.model.config import ModelConfig
from mars_runtime.model.predictions import Draw, Penalty, Rank, proposals_from_logits
from mars_runtime.model.threads import Threads
from mars_runtime.model.transfers import to_device
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import Metric


class CausalModel(ABC):
    config: ModelConfig
    device: torch.device
    threads: Threads | None = None  # None uses PyTorch's number of threads

    @abstractmethod
    def new_cache(self, rows: int, capacity: int) -> Any:
        pass

    @abstractmethod
    def hidden(self, tokens: Tensor, cache: Any, branches: Branches | None = None) -> Any:
        """Run the layers on tokens, int64 [R, Q], of the first R rows; return states [R, Q,
        hidden].

        The keys and values of token q are written into slot cursor + q. Without ``branches``, this
        is its position, and it attends to all slots up to its own. The cursors do not change.
        Raises ValueError if the cache is too small.
        """

    @abstractmethod
    def logits(self, hidden: Any, head: Tensor | slice) -> Tensor:
        """head: the slots to read, int64 [R, S] or a slice of Q. Returns [R, S, V]."""

    @abstractmethod
    def predict(
        self, hidden: Any, head: Tensor | slice, sampling: SamplingMetadata
    ) -> list[list[Proposal]]:
        pass

    def forward(
        self,
        tokens: Tensor,
        cache: Any,
        head: Tensor | slice | None,
        branches: Branches | None = None,
    ) -> Tensor | None:
        hidden = self.hidden(tokens, cache, branches)
        return None if head is None else self.logits(hidden, head)


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Tree layout of a forward pass: int64 tensors [R, Q], relative to each row's cursor.

    Token q attends to the slots [0, roots) and [starts, q], or with ``ends`` (block diffusion) up
    to ends. A real token is causal: positions = roots = starts = q. Mask j of the group after
    pending token i, whose first mask is fed as token s, has positions = i + 1 + j, roots = i + 1,
    starts = s.
    """

    positions: Tensor
    roots: Tensor
    starts: Tensor
    ends: Tensor | None = None

    @classmethod
    def of_block(cls, num_pending: int, size: int) -> Branches:
        """Causal tokens, then a block that attends to itself in both directions. Do not modify."""
        return _block(num_pending, size)

    @classmethod
    def of(cls, layouts: Sequence[Layout], num_fed: int) -> Branches:
        """Padded to ``num_fed`` tokens, on the host. Do not modify."""
        return _branches(tuple(layouts), num_fed)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        plain = (self.positions, self.roots, self.starts)
        return plain if self.ends is None else (*plain, self.ends)

    def to(self, device: torch.device) -> Branches:
        return Branches(*(to_device(part, device) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Layout:
    """Real tokens, then groups of masks. The last group belongs to the last pending token, the one
    before it to the token before, and so on. Padding extends the last group.
    """

    num_pending: int
    groups: tuple[int, ...]

    @property
    def num_fed(self) -> int:
        return self.num_pending + sum(self.groups)

    def numbers(self, num_fed: int) -> tuple[list[int], list[int], list[int]]:
        return _numbers(self.num_pending, self.groups, num_fed)


@lru_cache(maxsize=512)
def _branches(layouts: tuple[Layout, ...], num_fed: int) -> Branches:
    numbers = torch.tensor([layout.numbers(num_fed) for layout in layouts])
    return Branches(*numbers.unbind(1))


@lru_cache(maxsize=512)
def _block(num_pending: int, size: int) -> Branches:
    width = num_pending + size
    plain = torch.arange(width).unsqueeze(0)
    ends = torch.where(plain < num_pending, plain, width - 1)
    return Branches(plain, plain, plain, ends)


@lru_cache(maxsize=512)
def _numbers(
    num_pending: int, groups: tuple[int, ...], num_fed: int
) -> tuple[list[int], list[int], list[int]]:
    positions, roots, starts = (list(range(num_pending)) for _ in range(3))
    groups = groups or (0,)
    first_root = num_pending - len(groups) + 1
    for root, size in enumerate(groups, first_root):
        start = len(positions)
        count = num_fed - start if root == num_pending else size
        positions += range(root, root + count)
        roots += [root] * count
        starts += [start] * count
    return positions, roots, starts


@dataclass(frozen=True, slots=True)
class MaskGroup:
    """before: the slot that predicts the token before the first mask. masks: their slots. Slots are
    numbered among those that the output head reads in the row.
    """

    row: int
    before: int
    masks: range


@dataclass(frozen=True, slots=True, eq=False)
class SamplingMetadata:
    """forbidden: int64 ids. draws, penalties: one per row or None, or empty."""

    forbidden: Tensor
    metrics: Sequence[Metric]
    draws: Sequence[Draw | None] = ()
    groups: Sequence[MaskGroup] = ()
    penalties: Sequence[Penalty | None] = ()

    def proposals(self, logits: Tensor, rank: Rank | None = None) -> list[list[Proposal]]:
        """``groups`` are ignored."""
        rows = self.metrics, self.draws, self.penalties
        return proposals_from_logits(logits, self.forbidden, *rows, rank)

    def of(self, rows: Sequence[int]) -> SamplingMetadata:
        return replace(
            self,
            metrics=[self.metrics[row] for row in rows],
            draws=[self.draws[row] for row in rows] if self.draws else (),
            groups=[replace(g, row=rows.index(g.row)) for g in self.groups if g.row in rows],
            penalties=[self.penalties[row] for row in rows] if self.penalties else (),
        )


def chosen(hidden: Tensor, head: Tensor | slice) -> Tensor:
    if isinstance(head, slice):
        is_all = head.start == 0 and head.stop == hidden.shape[1]
        return (hidden if is_all else hidden[:, head]).contiguous()
    slots = to_device(head, hidden.device).unsqueeze(-1)
    return hidden.gather(1, slots.expand(-1, -1, hidden.shape[-1]))
