"""What one forward will do for one row of the cursor cache: pure bookkeeping.

Knows rows and settings; knows no tensors, model or cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from mars_runtime.acceptance import DecodeError, is_lossless, num_proposals
from mars_runtime.decoders.rows import Row
from mars_runtime.settings import DecodeSettings


@dataclass(slots=True)
class Plan:
    """What one forward will do for one row: the settings in force, the real tokens to feed, how
    many of them are drafts, how many proposals to ask for and how many tokens may leave."""

    row: Row
    settings: DecodeSettings
    tokens: list[int]
    num_drafts: int
    num_proposals: int
    remaining: int

    @property
    def first_slot(self) -> int:
        """The slot that predicts the first place not yet emitted."""
        return len(self.tokens) - self.num_drafts - 1

    @property
    def num_slots(self) -> int:
        return self.num_drafts + self.num_proposals

    @property
    def drafts(self) -> list[int]:
        return self.tokens[len(self.tokens) - self.num_drafts :]


def plan_row(row: Row, settings: DecodeSettings, chosen: int | None, has_mask: bool) -> Plan:
    """Drafts are dropped when lossless was switched off or the limit was lowered: they never left,
    so nobody misses them.

    chosen: B for a row that leaves it to be chosen. has_mask: whether there is a mask token. Raises
    DecodeError where one is needed.
    """
    limit = min(row.limit, settings.max_new_tokens)
    remaining = max(1, limit - row.num_emitted)
    num_drafts = min(row.num_drafts, remaining - 1) if is_lossless(settings) else 0
    chosen = chosen if settings.is_auto else None
    proposals = num_proposals(settings, remaining, num_drafts, chosen)
    if proposals > 1 and not has_mask:
        raise DecodeError("This checkpoint has no mask token: choose the method ar.", (row.number,))
    tokens = row.pending[: len(row.pending) - row.num_drafts + num_drafts]
    return Plan(row, settings, tokens, num_drafts, proposals, remaining)
