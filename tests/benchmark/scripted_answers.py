"""Peers and answers by hand: they say how long they took."""

from __future__ import annotations

from collections.abc import Sequence

from mars_runtime.lab.benchmark.paired import (
    Chunk,
    Peer,
    PromptGroup,
    Sample,
    TimedAnswer,
    TimedRow,
    play,
)

TOKENS = (5, 6, 7, 8)


def row(counts: Sequence[int], moments: Sequence[float], tokens: Sequence[int] = ()) -> TimedRow:
    """Return a row with forwards that gave ``counts`` tokens at ``moments``."""
    ids = tuple(tokens) or tuple(range(sum(counts)))
    return TimedRow(ids, tuple(map(Chunk, moments, counts)))


def answer(seconds: float, tokens: Sequence[int] = TOKENS, per_forward: int = 1) -> TimedAnswer:
    """One row: its forwards take equal time, each gives ``per_forward`` tokens."""
    num_forwards = len(tokens) // per_forward
    moments = [seconds * (i + 1) / num_forwards for i in range(num_forwards)]
    return TimedAnswer((row([per_forward] * num_forwards, moments, tokens),), seconds, num_forwards)


def question(family: str, first: int) -> PromptGroup:
    return PromptGroup(family, ((first, 1),))


def peer(
    name: str,
    seconds: float,
    threads: int = 1,
    tokens: Sequence[int] = TOKENS,
    per_forward: int = 1,
) -> Peer:
    """Takes ``seconds`` times the first token of the prompt."""
    return Peer(
        name, threads, lambda request: answer(seconds * request.prompts[0][0], tokens, per_forward)
    )


QUESTIONS = [
    question("symbolic", 1),
    question("symbolic", 2),
    question("reading", 3),
    question("natural", 4),
]


def samples_of(*peers: Peer, num_rounds: int = 2) -> list[Sample]:
    return list(play(peers, QUESTIONS, num_rounds, lambda peer: None))
