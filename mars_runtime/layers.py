"""Predictions of a model after each of its layers: inputs, results, and statistics of the results.

After every layer, the model's own final norm and output head read the hidden state of each token of
a forward pass, as if that layer were the last one (the logit lens, nostalgebraist 2020). After the
last layer this is the model's actual prediction. Earlier predictions are an interpretation and not
part of the computation: hidden states of early layers need not be in the basis that the head reads.
So a hidden state may represent a token some layers before it predicts the token, and probabilities
after early layers are the least reliable. The tuned lens (arXiv 2303.08112) learns a translation
for each layer instead. arXiv 2603.17942 studies how the states of masks come to represent what
next-token states represent.

The module works on plain values; ``decoders/logit_lens.py`` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.events import RowStep


@dataclass(frozen=True, slots=True)
class Fed:
    """The inputs of a forward pass of one row, from which it can be run again.

    ids: all real tokens before the pass and in it, including the drafts that it verified.
    cursor: number of leading ``ids`` that were in the KV cache.
    groups: number of masks after each of the last ``len(groups)`` tokens of ``ids``.
    text: the prompt and the whole answer; it contains the real tokens at the masks' positions.
    """

    ids: tuple[int, ...]
    cursor: int
    groups: tuple[int, ...]
    text: tuple[int, ...]

    @classmethod
    def by(cls, prompt_ids: Sequence[int], rows: Sequence[RowStep], index: int) -> Fed:
        """Return the inputs of a row's pass number ``index``; ``rows`` are the steps of the row."""
        row = rows[index]
        before = [token for row in rows[:index] for token in row.accepted]
        drafts = rows[index - 1].drafts if index else ()
        ids = (*prompt_ids, *before, *drafts)[: row.cursor + row.num_pending]
        text = (*prompt_ids, *(token for row in rows for token in row.accepted))
        return cls(ids, row.cursor, _groups(row), text)

    @property
    def num_pending(self) -> int:
        """Number of real tokens that the forward pass feeds."""
        return len(self.ids) - self.cursor


def _groups(row: RowStep) -> tuple[int, ...]:
    """Return the number of masks in each group of a step, including masks used as padding."""
    groups = row.groups or (0,)
    return (*groups[:-1], row.num_fed - row.num_pending - sum(groups[:-1]))


LayerPrediction = tuple[int, float]
"""A token id and its probability."""


@dataclass(frozen=True, slots=True)
class Column:
    """The predictions that one fed token makes for the next position.

    position: position of the fed token, counted from the beginning of the prompt.
    root: for a mask, the number of real tokens before its group; None for a real token.
    says: the most probable allowed token before the first layer and after each layer.
    """

    position: int
    root: int | None
    says: tuple[LayerPrediction, ...]

    @property
    def settled(self) -> int:
        """The number of the layer after which the most probable token no longer changes.

        The result is 0 if the token is the same before layer 1 and after every layer.
        """
        last = self.says[-1][0]
        layer = len(self.says) - 1
        while layer and self.says[layer - 1][0] == last:
            layer -= 1
        return layer


@dataclass(frozen=True, slots=True)
class Layers:
    """Predictions after each layer, for all tokens of a forward pass.

    columns: one for each fed token and mask, in order.
    real: the columns of the answer's real tokens at the positions of masks.
    """

    columns: tuple[Column, ...]
    real: tuple[Column, ...]


def counted_masks(fed: Fed, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of the last mask group that follows no rejected draft.

    All real tokens before this group belong to the final text.
    """
    num_kept = 0
    while num_kept < min(len(fed.ids), len(fed.text)) and fed.ids[num_kept] == fed.text[num_kept]:
        num_kept += 1
    masks = [column for column in columns if column.root is not None and column.root <= num_kept]
    last = max((column.root for column in masks if column.root is not None), default=0)
    return [column for column in masks if column.root == last]
