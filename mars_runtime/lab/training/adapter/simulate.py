"""Tokens per forward of lossless greedy decoding, counted exactly from which masks are right.

Knows no model. ``right[p]`` says how many leading masks of the group after position p are right,
for every position p of a text from the last token of the prompt on. Since drafts are verified, what
is committed is the base's own greedy text whatever the masks say: only the number of forwards
depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence


def forwards_every(right: Sequence[int], block_size: int) -> int:
    """Forwards with a group of masks after every pending token.

    Whichever draft is the last one accepted, its successors have been proposed in that forward.
    """
    at = count = 0
    while at < len(right):
        at += 1 + min(right[at], block_size - 1)
        count += 1
    return count


def forwards_one(right: Sequence[int], block_size: int) -> int:
    """Forwards with one group of masks, after the last draft: drafts come out of a forward only if
    all of those that it verified were right."""
    at = count = 0
    num_drafts = block_size - 1
    while at < len(right):
        count += 1  # nothing to verify: one token, and drafts behind it
        drafts_right = min(right[at], num_drafts)
        at += 1
        while at < len(right):
            count += 1  # verifies the drafts
            landed = at + drafts_right
            if drafts_right < num_drafts or landed >= len(right):
                at = landed + 1
                break
            drafts_right = min(right[landed], num_drafts)
            at = landed + 1
    return count


def tokens_per_forward(texts: Sequence[Sequence[int]], block_size: int) -> tuple[float, float]:
    """(one group, a group after every pending token) over all texts."""
    tokens = sum(map(len, texts))
    one = sum(forwards_one(text, block_size) for text in texts)
    every = sum(forwards_every(text, block_size) for text in texts)
    return tokens / max(1, one), tokens / max(1, every)


def right_by_position(texts: Sequence[Sequence[int]], num_masks: int) -> list[float]:
    """Share of groups whose first j masks are all right, for j = 1 .. ``num_masks``."""
    groups = max(1, sum(map(len, texts)))
    return [sum(r >= j for text in texts for r in text) / groups for j in range(1, num_masks + 1)]
