"""What one forward will do for one row of the cursor cache: pure bookkeeping.

Knows rows and settings; knows no tensors, model or cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mars_runtime.branches import Layout
from mars_runtime.decoders.base import NoMaskError
from mars_runtime.decoders.feed import Feed, group_sizes
from mars_runtime.decoders.rows import Row
from mars_runtime.decoders.threshold import raised_after
from mars_runtime.events import Proposal
from mars_runtime.model.slots import MaskGroup
from mars_runtime.settings import DecodeSettings


@dataclass(slots=True)
class Plan:
    """What one forward will do for one row: the settings in force, the real tokens to feed, how
    many of them are drafts, the masks after each of those and after the one before, and how many
    tokens may leave.

    layout: how the tokens are fed. is_tree: whether masks stand after other tokens than the last
    pending one. first_slot: the slot that predicts the first place not yet emitted. num_checks:
    slots before it that are read too, for what AR would have chosen in the places of tokens that
    have left.
    """

    row: Row
    settings: DecodeSettings
    tokens: list[int]
    num_drafts: int
    groups: tuple[int, ...]
    remaining: int
    layout: Layout = field(init=False)
    is_tree: bool = field(init=False)
    first_slot: int = field(init=False)
    num_checks: int = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout(len(self.tokens), self.groups)
        self.is_tree = any(self.groups[:-1])
        self.first_slot = len(self.tokens) - self.num_drafts - 1
        follows = self.settings.is_adaptive and self.settings.threshold == "agreement"
        self.num_checks = self.first_slot if follows else 0

    @property
    def num_slots(self) -> int:
        """Slots to be read, one after the other: checks, a choice of AR for each group, and its
        masks."""
        return self.num_checks + len(self.groups) + sum(self.groups)

    @property
    def first_read(self) -> int:
        """The first slot to be read."""
        return self.first_slot - self.num_checks

    @property
    def drafts(self) -> list[int]:
        return self.tokens[len(self.tokens) - self.num_drafts :]

    def risen(self, checks: list[Proposal]) -> float:
        """How far τ has risen, with what AR chose in the places of the row's latest tokens. The
        row learns it once the forward is settled."""
        left = self.tokens[1 : 1 + len(checks)]
        agreed = [check.token == token for check, token in zip(checks, left, strict=True)]
        return raised_after(self.row.raised, agreed, self.settings.target)

    def read_positions(self) -> list[int]:
        """Where the slots to be read stand, counted from the cursor."""
        layout = self.layout
        return layout.numbers(layout.num_fed)[0][self.first_read :]

    def ranked(self, place: int) -> list[MaskGroup]:
        """The masks that a sampler head may choose anew; ``place``: of the row in the forward.

        The first mask of a group follows what AR chose behind the token that the group stands
        after. Rows that draw keep what was drawn; entropy says nothing of single candidates.
        """
        if self.settings.temperature > 0 or self.settings.metric == "entropy":
            return []
        found, at = [], self.num_checks + len(self.groups)
        for number, size in enumerate(self.groups):
            if size:
                found.append(MaskGroup(place, self.num_checks + number, range(at, at + size)))
            at += size
        return found

    def split(self, slots: list[Proposal]) -> tuple[list[Proposal], list[list[Proposal]]]:
        """What the slots predict, as ``acceptance.judge`` asks for it: choices and groups."""
        at, groups = len(self.groups), []
        for size in self.groups:
            groups.append(slots[at : at + size])
            at += size
        return slots[: len(self.groups)], groups


def plan_row(row: Row, settings: DecodeSettings, feed: Feed, has_mask: bool) -> Plan:
    """Drafts are dropped when lossless was switched off or the limit was lowered: they never left,
    so nobody misses them.

    feed: what may be fed at most. has_mask: whether there is a mask token. Raises DecodeError where
    one is needed.
    """
    limit = min(row.limit, settings.max_new_tokens)
    remaining = max(1, limit - row.num_emitted)
    num_drafts = min(row.num_drafts, feed.num_drafts, remaining - 1)
    groups = group_sizes(settings, feed, remaining, num_drafts)
    if not has_mask and settings.is_verified and settings.lookup:
        groups = (0,) * len(groups)
    if any(groups) and not has_mask:
        raise NoMaskError((row.number,))
    tokens = row.pending[: len(row.pending) - row.num_drafts + num_drafts]
    return Plan(row, settings, tokens, num_drafts, groups, remaining)
