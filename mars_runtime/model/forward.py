"""Inputs of a model's forward: the layout of its tokens, and the slots to read.

A token may attend to less than everything before it: with a group of masks after every pending
token a forward is a small tree, in which positions differ from slots. The module works on numbers,
without tokens or weights.
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


class CausalModel(ABC):
    """A causal language model on one device, as the decoders use it.

    A forward has two parts: ``hidden`` runs the layers, then ``logits`` or ``read`` applies the
    head to some of its slots.
    """

    config: ModelConfig
    device: torch.device

    @abstractmethod
    def new_cache(self, rows: int, capacity: int) -> Any:
        """Return an empty KV cache for ``rows`` rows of at most ``capacity`` tokens."""

    @abstractmethod
    def hidden(self, tokens: Tensor, cache: Any, branches: Branches | None = None) -> Any:
        """Run one forward of Q tokens for each of the first R rows of the cache, without head.

        tokens: [R, Q] int64; the keys and values of token q of row r are written into slot
            cache.cursors[r] + q. Without ``branches`` the token has that position and attends to
            all slots up to its own. Cursors are not moved. Returns [R, Q, hidden]. Raises
            ValueError if the cache is too short.
        """

    @abstractmethod
    def logits(self, hidden: Any, head: Tensor | slice) -> Tensor:
        """Return the logits of slots of a forward, [R, H, V] in the model's dtype.

        head: the slots: [R, H] int64, or a slice of Q.
        """

    @abstractmethod
    def read(
        self, hidden: Any, head: Tensor | slice, sampling: SamplingMetadata
    ) -> list[list[Proposal]]:
        """Return the predictions at slots of a forward, for each row."""

    def forward(
        self,
        tokens: Tensor,
        cache: Any,
        head: Tensor | slice | None,
        branches: Branches | None = None,
    ) -> Tensor | None:
        """Return the ``logits`` of the slots ``head``, or None without head (prefill)."""
        hidden = self.hidden(tokens, cache, branches)
        return None if head is None else self.logits(hidden, head)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some layers of a forward that is run in several calls.

    layers: range of layer indices, from 0. states: output of the layers before, [R, Q, hidden];
    None for the first part, which starts with embeddings. An empty range at 0 returns the
    embeddings.
    """

    layers: range
    states: Tensor | None = None


def given(part: Part | None, shape: tuple[int, int, int]) -> Tensor:
    """Return the states from which a part continues that does not start with the first layer.

    Raises ValueError if their shape differs from the forward's.
    """
    if part is None or part.states is None or part.states.shape != shape:
        raise ValueError(f"a part of a forward needs states of the shape {shape}")
    return part.states


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Tree layout of a forward: int64 tensors [R, Q], relative to each row's cursor.

    Token q of row r has position cursor + positions. Its keys and values go to slot cursor + q, and
    it attends to the slots [0, cursor + roots) and [cursor + starts, cursor + q].

    A real token is plain causal: positions = roots = starts = q. Mask j of the group after pending
    token i, whose first mask is fed as token s, has positions = i + 1 + j, roots = i + 1 and
    starts = s; so positions - roots is its place in its group. With ``ends``, token q attends up to
    slot cursor + ends instead of its own: to all of a block with attention in both directions.
    """

    positions: Tensor
    roots: Tensor
    starts: Tensor
    ends: Tensor | None = None

    @classmethod
    def of_block(cls, num_pending: int, size: int) -> Branches:
        """Return the branches of one row of block diffusion, on the host.

        The ``num_pending`` real tokens are causal; each token of the block of ``size`` attends to
        everything before the block and to the whole block. The result is cached: do not modify it.
        """
        return _block(num_pending, size)

    @classmethod
    def of(cls, layouts: Sequence[Layout], num_fed: int) -> Branches:
        """Return the branches of rows with these layouts, each padded to ``num_fed`` tokens, on the
        host.

        The result is cached: do not modify it.
        """
        return _branches(tuple(layouts), num_fed)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors in order, with ``ends`` only if present."""
        plain = (self.positions, self.roots, self.starts)
        return plain if self.ends is None else (*plain, self.ends)

    def to(self, device: torch.device) -> Branches:
        """Return the branches on a device."""
        return Branches(*(to_device(part, device) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a row's tokens: ``num_pending`` real ones, then groups of masks.

    groups: number of masks after each of the last ``len(groups)`` pending tokens, in order. Padding
    up to the width of the forward extends the last group.
    """

    num_pending: int
    groups: tuple[int, ...]

    @property
    def num_fed(self) -> int:
        """Number of tokens of the row, without padding."""
        return self.num_pending + sum(self.groups)

    def numbers(self, num_fed: int) -> tuple[list[int], list[int], list[int]]:
        """Return positions, roots and starts of ``Branches``, each with ``num_fed`` numbers."""
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
    """A group of masks that are filled from left to right.

    before: the slot that predicts the token before the first mask. masks: slots of the masks. Slots
    are counted among those read of the row.
    """

    row: int
    before: int
    masks: range


@dataclass(frozen=True, slots=True, eq=False)
class SamplingMetadata:
    """How the slots of a forward are turned into tokens, row by row.

    forbidden: int64 ids that are never emitted. metrics: confidence metric of each row. draws: how
    each row samples, None for greedy. penalties: changes of each row's logits, None for none.
    Either may be empty. groups: masks that a sampler head, if present, fills from left to right.
    """

    forbidden: Tensor
    metrics: Sequence[Metric]
    draws: Sequence[Draw | None] = ()
    groups: Sequence[MaskGroup] = ()
    penalties: Sequence[Penalty | None] = ()

    def read(self, logits: Tensor, rank: Rank | None = None) -> list[list[Proposal]]:
        """Read logits [R, H, V] (``acceptance.read``); only ``rank`` uses ``groups``."""
        return read(logits, self.forbidden, self.metrics, self.draws, self.penalties, rank)

    def of(self, rows: Sequence[int]) -> SamplingMetadata:
        """Return the metadata of a selection of rows, renumbered."""
        return replace(
            self,
            metrics=[self.metrics[row] for row in rows],
            draws=[self.draws[row] for row in rows] if self.draws else (),
            groups=[replace(g, row=rows.index(g.row)) for g in self.groups if g.row in rows],
            penalties=[self.penalties[row] for row in rows] if self.penalties else (),
        )


def chosen(hidden: Tensor, head: Tensor | slice) -> Tensor:
    """Return the states of the read slots, [R, S, H], from those of a forward, [R, Q, H].

    head: the slots: [R, S] int64, or a slice of Q.
    """
    if isinstance(head, slice):
        return hidden[:, head].contiguous()
    slots = to_device(head, hidden.device).unsqueeze(-1)
    return hidden.gather(1, slots.expand(-1, -1, hidden.shape[-1]))
