"""The comparison of checkouts, with workers of known speed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))

import compare_trees


class Steady:
    """A worker that needs ``slow`` milliseconds for each token of an answer, more at first."""

    def __init__(self, name: str, slow: int, turns: list[tuple[str, str]]) -> None:
        self._name, self._slow, self._turns = name, slow, turns

    def answer(self, prompt: str) -> tuple[int, float]:
        is_cold = not any(turn == (self._name, prompt) for turn in self._turns)
        self._turns.append((self._name, prompt))
        return 10, 0.01 * self._slow * (5 if is_cold else 1)


def test_speeds_are_of_warm_workers_in_turns_whose_order_alternates() -> None:
    turns: list[tuple[str, str]] = []
    workers = [Steady("a", 1, turns), Steady("b", 2, turns)]
    first, second = compare_trees.compare(workers, seconds=0.0)  # type: ignore[arg-type]
    assert first == pytest.approx([1000.0] * len(first))
    assert second == pytest.approx([500.0] * len(first))
    names = [name for name, _ in turns]
    assert names[:8] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    prompts = [prompt for _, prompt in turns]
    assert prompts[::2] == prompts[1::2], "both answer a prompt before the next"
    assert len(set(prompts)) == len(first) == 20
