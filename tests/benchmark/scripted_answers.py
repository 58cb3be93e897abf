"""Peers and answers by hand: they say how long they took."""

from __future__ import annotations

from collections.abc import Sequence

from mars_runtime.lab.benchmark.paired import Chunk, Peer, Question, Sample, TimedAnswer, play

TOKENS = (5, 6, 7, 8)
FAMILIES = ("symbolic", "symbolic", "reading", "natural")
QUESTIONS = [Question(family, (number, 1)) for number, family in enumerate(FAMILIES, 1)]


def answer(seconds: float, tokens: Sequence[int] = TOKENS, per_forward: int = 1) -> TimedAnswer:
    """The forwards take equal time, each gives ``per_forward`` tokens."""
    num_forwards = len(tokens) // per_forward
    chunks = [Chunk(seconds * (i + 1) / num_forwards, per_forward) for i in range(num_forwards)]
    return TimedAnswer(tuple(tokens), tuple(chunks), seconds)


def peer(name: str, seconds: float, tokens: Sequence[int] = TOKENS, per_forward: int = 1) -> Peer:
    """Takes ``seconds`` times the first token of the prompt."""
    return Peer(name, 1, lambda prompt: answer(seconds * prompt[0], tokens, per_forward))


def samples_of(*peers: Peer, num_rounds: int = 2) -> list[Sample]:
    return list(play(peers, QUESTIONS, num_rounds, lambda peer: None))
