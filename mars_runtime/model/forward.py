"""What a forward of a model is asked: how its tokens are laid out, and which slots are read.

A token may see less than everything before it: a group of masks after every pending token makes a
forward a small tree, whose positions are not slots. Knows numbers; knows no tokens or weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mars_runtime.acceptance import Draw, Penalty, Rank, read
from mars_runtime.events import Proposal
from mars_runtime.model.config import ModelConfig
from mars_runtime.settings import Metric
from mars_runtime.transfers import to_device


class LanguageModel(ABC):
    """A causal language model on one device: a forward in two parts."""

    config: ModelConfig

    @abstractmethod
    def hidden(
        self,
        tokens: Tensor,
        cache: Any,
        branches: Branches | None = None,
        part: Part | None = None,
    ) -> Tensor:
        """One forward of Q tokens for each of the first R rows of the cache, without head.

        tokens: [R, Q] int64; the keys and values of token q of row r are written into slot
            cache.cursors[r] + q. Without ``branches`` it stands at that position and sees all
            slots up to its own. Cursors are not moved.
        part: which of its layers are run, all by default.
        Returns [R, Q, hidden]. Raises ValueError when the cache is too short.
        """

    @abstractmethod
    def logits(self, hidden: Tensor, head: Tensor | slice) -> Tensor:
        """What slots of a forward predict, [R, H, V] in the model's dtype.

        head: the slots: [R, H] int64, or a slice of Q.
        """

    def forward(
        self,
        tokens: Tensor,
        cache: Any,
        head: Tensor | slice | None,
        branches: Branches | None = None,
    ) -> Tensor | None:
        """``hidden`` and the ``logits`` of the slots that need some; None for no head (prefill)."""
        hidden = self.hidden(tokens, cache, branches)
        return None if head is None else self.logits(hidden, head)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some layers of a forward, which need as many calls as parts: those of ``layers``, a range
    from 0 on, on what the layers before them gave, ``states`` [R, Q, hidden]; None for the first,
    which get embeddings. An empty range at 0 gives the embeddings themselves."""

    layers: range
    states: Tensor | None = None


def given(part: Part | None, shape: tuple[int, int, int]) -> Tensor:
    """What a part that does not begin with the first layer goes on from. Raises ValueError for
    states of another shape than its forward's."""
    if part is None or part.states is None or part.states.shape != shape:
        raise ValueError(f"a part of a forward needs states of the shape {shape}")
    return part.states


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Three int64 tensors [R, Q], counted from each row's cursor.

    Token q of row r stands at position cursor + positions. Its keys and values go to slot
    cursor + q, and it sees the slots [0, cursor + roots) and [cursor + starts, cursor + q].

    A real token is plain causal: positions = roots = starts = q. Mask j of the group after pending
    token i, whose first mask is fed as token s, has positions = i + 1 + j, roots = i + 1 and
    starts = s; so positions - roots is its place in its group. Where there are ``ends``, token q
    sees up to slot cursor + ends instead of its own: all of a block that is seen both ways.
    """

    positions: Tensor
    roots: Tensor
    starts: Tensor
    ends: Tensor | None = None

    @classmethod
    def of_block(cls, num_pending: int, size: int) -> Branches:
        """Branches of one row: real tokens, each of which sees what is before it, then a block of
        ``size`` that sees all before it and all of itself. On the host; not to be written to."""
        return _block(num_pending, size)

    @classmethod
    def of(cls, layouts: Sequence[Layout], num_fed: int) -> Branches:
        """Branches of rows with these layouts, each filled up to ``num_fed`` tokens.

        On the host. The same layouts give the same tensors: do not write to them.
        """
        return _branches(tuple(layouts), num_fed)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors in their order, ``ends`` only where there are some."""
        plain = (self.positions, self.roots, self.starts)
        return plain if self.ends is None else (*plain, self.ends)

    def to(self, device: torch.device) -> Branches:
        """The same on a device."""
        return Branches(*(to_device(part, device) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tokens of a row are fed: ``num_pending`` real ones, then groups of masks.

    groups: how many masks follow each of the last ``len(groups)`` pending tokens, in their order.
    What fills the row up to the width of the forward goes on with the last group.
    """

    num_pending: int
    groups: tuple[int, ...]

    @property
    def num_fed(self) -> int:
        """Tokens that the row needs."""
        return self.num_pending + sum(self.groups)

    def numbers(self, num_fed: int) -> tuple[list[int], list[int], list[int]]:
        """positions, roots and starts of ``Branches``, a number for each of ``num_fed`` tokens."""
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
    """Masks of a row that are filled from left to right: their slots among those that are read of
    the row. before: the slot that says which token they follow."""

    row: int
    before: int
    masks: range


@dataclass(frozen=True, slots=True, eq=False)
class SamplingMetadata:
    """How the slots of a forward are turned into tokens, row by row.

    forbidden: int64 ids that can never come out. metrics: of confidence, one for each row.
    draws: how a row draws its tokens, None for greedy. penalties: how the logits of a
    row are changed before they are read, None for not at all. Either may be empty.
    groups: masks that a sampler head, where there is one, fills from left to right.
    """

    forbidden: Tensor
    metrics: Sequence[Metric]
    draws: Sequence[Draw | None] = ()
    groups: Sequence[MaskGroup] = ()
    penalties: Sequence[Penalty | None] = ()

    def read(self, logits: Tensor, rank: Rank | None = None) -> list[list[Proposal]]:
        """Read logits [R, H, V] (``acceptance.read``); only ``rank`` looks at ``groups``."""
        return read(logits, self.forbidden, self.metrics, self.draws, self.penalties, rank)

    def of(self, rows: Sequence[int]) -> SamplingMetadata:
        """That of some rows, which are counted anew."""
        return replace(
            self,
            metrics=[self.metrics[row] for row in rows],
            draws=[self.draws[row] for row in rows] if self.draws else (),
            groups=[replace(g, row=rows.index(g.row)) for g in self.groups if g.row in rows],
            penalties=[self.penalties[row] for row in rows] if self.penalties else (),
        )


def chosen(hidden: Tensor, head: Tensor | slice) -> Tensor:
    """States [R, S, H] of the slots that are read, of all those of a forward, [R, Q, H].

    head: the slots: [R, S] int64, or a slice of Q.
    """
    if isinstance(head, slice):
        return hidden[:, head].contiguous()
    slots = to_device(head, hidden.device).unsqueeze(-1)
    return hidden.gather(1, slots.expand(-1, -1, hidden.shape[-1]))
