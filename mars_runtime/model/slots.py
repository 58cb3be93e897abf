"""Which slots of a forward are read, and which of them are masks that follow one another.

Knows places alone: no settings, no predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class MaskGroup:
    """Masks of a row that are filled from left to right: their slots among those that are read of
    the row. before: the slot that says which token they follow."""

    row: int
    before: int
    masks: range


def chosen(hidden: Tensor, head: Tensor | slice) -> Tensor:
    """States [R, S, H] of the slots that are read, of all those of a forward, [R, Q, H].

    head: the slots: [R, S] int64, or a slice of Q.
    """
    if isinstance(head, slice):
        return hidden[:, head].contiguous()
    return hidden.gather(1, head.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
