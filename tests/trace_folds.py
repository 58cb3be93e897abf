"""Folds that only tests need: the reference for the page's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mars_runtime.runs import folds
from mars_runtime.runs.derived import Source
from mars_runtime.runs.events import Event
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class SettingsMove:
    """At ``step`` (counted from 0 in the row) other settings came into force."""

    step: int
    before: DecodeSettings
    after: DecodeSettings


def forwards_saved(events: Sequence[Event], row: int = 0) -> int:
    """How many forwards fewer than one per token."""
    return folds.num_tokens(events, row) - folds.num_forwards(events, row)


def passes_saved(events: Sequence[Event], row: int = 0) -> Counter[Source]:
    """Return how many forwards were saved compared with one per token, by source, up to a loop.

    One token of each forward is not credited to a source: AR's own, or the last one if all came
    from drafts.
    """
    saved: Counter[Source] = Counter()
    for source in folds.sources(folds.up_to_loop(events, row), row):
        thanked = list(source)
        if "ar" in thanked:
            thanked.remove("ar")
        elif thanked:
            thanked.pop()
        else:
            saved["masks"] -= 1  # block diffusion: a forward that emitted nothing
        saved.update(thanked)
    return saved


def settings_moves(events: Iterable[Event], row: int = 0) -> list[SettingsMove]:
    """Where any setting changed in mid-run."""
    moves: list[SettingsMove] = []
    before: DecodeSettings | None = None
    for index, (step, _) in enumerate(folds.row_steps(events, row)):
        if before is not None and step.settings != before:
            moves.append(SettingsMove(index, before, step.settings))
        before = step.settings
    return moves


def tau_moves(events: Iterable[Event], row: int = 0) -> list[SettingsMove]:
    """Where tau or the block size changed in mid-run."""
    return [
        move
        for move in settings_moves(events, row)
        if (move.before.tau, move.before.block_size) != (move.after.tau, move.after.block_size)
    ]
