"""Folds that only tests need: what the page's own are held against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mars_runtime import folds
from mars_runtime.events import Event


def forwards_saved(events: Sequence[Event], row: int = 0) -> int:
    """How many forwards fewer than one per token."""
    return folds.num_tokens(events, row) - folds.num_forwards(events, row)


def acceptance_by_position(events: Iterable[Event], row: int = 0) -> list[float]:
    """For each place in a forward, the share of forwards proposing there that emitted there."""
    proposed: list[int] = []
    emitted: list[int] = []
    for step, _ in folds.row_steps(events, row):
        width = len(step.proposals)
        for counts in (proposed, emitted):
            counts.extend([0] * (width - len(counts)))
        for place in range(width):
            proposed[place] += 1
            emitted[place] += place < len(step.accepted)
    return [
        taken / offered if offered else 0.0
        for taken, offered in zip(emitted, proposed, strict=True)
    ]


def tau_moves(events: Iterable[Event], row: int = 0) -> list[folds.SettingsMove]:
    """Where tau or the block size changed in mid-run."""
    return [
        move
        for move in folds.settings_moves(events, row)
        if (move.before.tau, move.before.block_size) != (move.after.tau, move.after.block_size)
    ]
