"""Rounds: the compared methods run in turn, several times, so that timings are comparable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from app.ui.controls import Whole

ROUNDS = (3, 5)
"""Numbers of rounds that a visitor can choose. The first one is the default."""
NumRounds = Annotated[Literal[3, 5], Whole]
T = TypeVar("T")


def in_turn(items: Sequence[T], number: int) -> list[T]:
    return list(reversed(items)) if number % 2 else list(items)


def rounds_text(done: int, wanted: int) -> str:
    if done < wanted:
        return f"timed in {done} of {wanted} rounds before the time limit"
    return f"timed in {done} rounds"
