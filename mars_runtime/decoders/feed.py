"""How much a forward feeds of a row beside the tokens that left: drafts to verify and masks.

Knows settings and limits; knows no rows, tensors or model.
"""

from __future__ import annotations

from dataclasses import dataclass

from mars_runtime.acceptance import num_proposals
from mars_runtime.settings import MAX_BLOCK_SIZE, MAX_DRAFTS, MAX_FED, DecodeSettings


@dataclass(frozen=True, slots=True)
class Feed:
    """What a forward may feed for a row beside the tokens that left: at most ``num_drafts`` drafts,
    ``num_masks`` masks in a group; ``is_every``: a group after each draft and not only the last."""

    num_drafts: int
    num_masks: int
    is_every: bool

    @classmethod
    def of(cls, settings: DecodeSettings, trained: int = MAX_BLOCK_SIZE) -> Feed:
        """What settings ask that leave nothing to be chosen. trained: the B that the model was
        trained with, which counts beside a draft model: there B is the draft's first of all."""
        if settings.method == "jacobi":
            return cls(settings.num_guesses, 0, is_every=False)
        num_drafts = MAX_DRAFTS if settings.is_verified else 0
        size = settings.num_proposals
        size = min(size, trained) if settings.method == "speculative" else size
        return cls(num_drafts, size - 1, settings.groups == "every")


def group_sizes(
    settings: DecodeSettings, feed: Feed, remaining: int, num_drafts: int
) -> tuple[int, ...]:
    """Masks after the last emitted token and after each of ``num_drafts`` drafts: none that could
    not be of use, and no more than MAX_FED tokens in all."""
    size = feed.num_masks + 1
    if not feed.is_every or not num_drafts:
        last = num_proposals(settings, remaining, num_drafts, size) - 1
        return (*[0] * num_drafts, last)
    size = min(size, MAX_FED // (num_drafts + 1))
    before = range(num_drafts + 1)
    return tuple([num_proposals(settings, remaining, place, size) - 1 for place in before])
