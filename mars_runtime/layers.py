"""Predictions of a model after each of its layers: inputs, results, and figures from them.

After every layer the state of each token of a forward is read by the model's own final norm and
head, as if it were the last layer (the logit lens, nostalgebraist 2020). The reading after the last
layer is the forward's own. Earlier readings are a view, not a part of the computation: states of
early layers need not be in the basis that the head reads, so a token may be present some layers
before it is read, and probabilities of early layers are the least reliable (the tuned lens, arXiv
2303.08112, learns a translation for each layer; nothing is learnt here). arXiv 2603.17942 studies
how masks come to hold what next-token states hold.

The module works on plain values; ``decoders/logit_lens.py`` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.events import RowStep


@dataclass(frozen=True, slots=True)
class Fed:
    """The inputs of a forward of one row, from which it can be run again.

    ids: all real tokens before it and in it, including drafts that it verified. cursor: the number
        of leading ones that were cached. groups: masks after each of the last ``len(groups)`` of
        ``ids``. text: the prompt and the whole answer, which holds the real tokens at the masks'
        positions.
    """

    ids: tuple[int, ...]
    cursor: int
    groups: tuple[int, ...]
    text: tuple[int, ...]

    @classmethod
    def by(cls, prompt_ids: Sequence[int], rows: Sequence[RowStep], index: int) -> Fed:
        """Return the inputs of forward number ``index`` of a row with the steps ``rows``."""
        row = rows[index]
        before = [token for row in rows[:index] for token in row.accepted]
        drafts = rows[index - 1].drafts if index else ()
        ids = (*prompt_ids, *before, *drafts)[: row.cursor + row.num_pending]
        text = (*prompt_ids, *(token for row in rows for token in row.accepted))
        return cls(ids, row.cursor, _groups(row), text)

    @property
    def num_pending(self) -> int:
        """Number of real tokens that the forward feeds."""
        return len(self.ids) - self.cursor


def _groups(row: RowStep) -> tuple[int, ...]:
    """Return the groups with the masks that padded the row to the width of the forward."""
    groups = row.groups or (0,)
    return (*groups[:-1], row.num_fed - row.num_pending - sum(groups[:-1]))


Saying = tuple[int, float]
"""A token id and its probability."""


@dataclass(frozen=True, slots=True)
class Column:
    """The predictions of one token of a forward for the token behind its position.

    position: counted from the beginning of the prompt. root: for a mask, the number of real tokens
        before its group; None for a real token. says: the most probable allowed token, before the
        first layer and after each layer.
    """

    position: int
    root: int | None
    says: tuple[Saying, ...]

    @property
    def settled(self) -> int:
        """The first layer from which on the most probable token is the final one; 0 means before
        layer 1."""
        last = self.says[-1][0]
        layer = len(self.says) - 1
        while layer and self.says[layer - 1][0] == last:
            layer -= 1
        return layer


@dataclass(frozen=True, slots=True)
class Layers:
    """Columns of a forward in the order of its tokens.

    real: columns of the real tokens at the masks' positions, one per position, as far as the run
    got.
    """

    columns: tuple[Column, ...]
    real: tuple[Column, ...]


def counted_masks(fed: Fed, columns: Sequence[Column]) -> list[Column]:
    """Return the masks of the group after the last real token that the run kept."""
    num_kept = 0
    while num_kept < min(len(fed.ids), len(fed.text)) and fed.ids[num_kept] == fed.text[num_kept]:
        num_kept += 1
    masks = [column for column in columns if column.root is not None and column.root <= num_kept]
    last = max((column.root for column in masks if column.root is not None), default=0)
    return [column for column in masks if column.root == last]
