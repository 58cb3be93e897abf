"""What a model would say after each of its layers: what is asked, what is found, and folds of it.

After every layer the state of each token of a forward is read by the model's own final norm and
head, as if no layer came behind it (the logit lens, nostalgebraist 2020). Its last line is the
forward's own. The lines before it are a view, not what the model computes with: states of early
layers need not lie where the head looks for them, so a token can be there some layers before it is
read, and probabilities of early layers are the least to be trusted (the tuned lens, arXiv
2303.08112, learns a translation for each layer; nothing is learnt here). That masks come to hold
what next-token states hold is the subject of arXiv 2603.17942.

Plain values: knows no tensors and no model. Computed by ``decoders/layers.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.events import RowStep


@dataclass(frozen=True, slots=True)
class Fed:
    """A forward of one row, as it was fed: enough to run it again.

    ids: all real tokens before it and in it, drafts that it verified included. cursor: the first so
        many were in the cache. groups: masks after each of the last ``len(groups)`` of ``ids``.
    text: prompt and answer as the run went on, from which real tokens are put where masks stood.
    """

    ids: tuple[int, ...]
    cursor: int
    groups: tuple[int, ...]
    text: tuple[int, ...]

    @classmethod
    def by(cls, prompt_ids: Sequence[int], rows: Sequence[RowStep], index: int) -> Fed:
        """The forward number ``index`` of a row of which ``rows`` are all steps."""
        row = rows[index]
        before = [token for each in rows[:index] for token in each.accepted]
        drafts = rows[index - 1].drafts if index else ()
        ids = (*prompt_ids, *before, *drafts)[: row.cursor + row.num_pending]
        text = (*prompt_ids, *(token for each in rows for token in each.accepted))
        return cls(ids, row.cursor, _groups(row), text)

    @property
    def num_pending(self) -> int:
        """Real tokens that the forward feeds."""
        return len(self.ids) - self.cursor


def _groups(row: RowStep) -> tuple[int, ...]:
    """With what filled the row up to the width of a forward that others shared."""
    groups = row.groups or (0,)
    return (*groups[:-1], row.num_fed - row.num_pending - sum(groups[:-1]))


Saying = tuple[int, float]
"""A token id and its probability."""


@dataclass(frozen=True, slots=True)
class Column:
    """What one token of a forward says of the token behind its position.

    position: counted from the beginning of the prompt. root: of a mask, the real tokens that its
        group follows; None for a real token. says: the likeliest token that can come out, before
        the first layer and after each.
    """

    position: int
    root: int | None
    says: tuple[Saying, ...]

    @property
    def settled(self) -> int:
        """The first layer from which on the likeliest token is the last layer's own: 0 is before
        the first layer."""
        last = self.says[-1][0]
        layer = len(self.says) - 1
        while layer and self.says[layer - 1][0] == last:
            layer -= 1
        return layer


@dataclass(frozen=True, slots=True)
class Layers:
    """The columns of a forward, in the order in which its tokens were fed; and those of the real
    tokens that the run wrote where masks stood, as far as it got: one for each position."""

    columns: tuple[Column, ...]
    real: tuple[Column, ...]


def counted_masks(fed: Fed, columns: Sequence[Column]) -> list[Column]:
    """The masks of the group that counted: the one after the last real token that the run kept."""
    kept = 0
    while kept < min(len(fed.ids), len(fed.text)) and fed.ids[kept] == fed.text[kept]:
        kept += 1
    masks = [each for each in columns if each.root is not None and each.root <= kept]
    last = max((each.root for each in masks if each.root is not None), default=0)
    return [each for each in masks if each.root == last]
