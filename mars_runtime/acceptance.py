"""The rules by which predictions are accepted, as pure functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence


def accept_prefix(confidences: Sequence[float], tau: float) -> int:
    """Return how many proposals are accepted from left to right while confidence >= tau (arXiv
    2604.07023). The first one is always accepted; 0 only without proposals.
    """
    count = 0
    for confidence in confidences:
        if count and not confidence >= tau:
            break
        count += 1
    return count


def accept_by_confidence(confidences: Sequence[float], tau: float) -> list[int]:
    """Return the accepted positions, the most confident first: those with confidence >= tau, and
    always the most confident one. Among equal confidences the earlier position comes first.
    """
    order = sorted(range(len(confidences)), key=lambda position: -confidences[position])
    return order[: accept_prefix([confidences[position] for position in order], tau)]


def common_prefix_length(drafts: Sequence[int], choices: Sequence[int]) -> int:
    count = 0
    for draft, choice in zip(drafts, choices, strict=False):
        if draft != choice:
            break
        count += 1
    return count


def up_to_end(tokens: list[int], ends: frozenset[int]) -> list[int]:
    for index, token in enumerate(tokens):
        if token in ends:
            return tokens[: index + 1]
    return tokens
