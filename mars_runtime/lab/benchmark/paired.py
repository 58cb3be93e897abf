"""Time peers in pairs, in alternating order."""

from __future__ import annotations

import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from mars_runtime.runs import statistics
from mars_runtime.runs.statistics import Estimate

Span = Literal["decode", "whole"]
"""``decode``: from the arrival of the first tokens, which are not counted, so prefill is excluded
in the same way for every peer."""

Measure = Literal["rate", "eta"]
"""``eta``: the ratio of tokens per second divided by the ratio of tokens per forward pass. It is 1
if each saved forward pass saved its full time."""


class Chunk(NamedTuple):
    """A forward pass. moment: when its tokens arrived."""

    moment: float
    num_tokens: int


@dataclass(frozen=True)
class TimedAnswer:
    """An answer, EOS included. Raises ValueError."""

    tokens: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    seconds: float

    def __post_init__(self) -> None:
        if not self.tokens or self.seconds <= 0:
            raise ValueError("An answer needs at least one token and a time above 0.")

    @property
    def first_seconds(self) -> float:
        return next(chunk.moment for chunk in self.chunks if chunk.num_tokens)

    @cached_property
    def later(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.moment > self.first_seconds]

    def tpf(self, span: Span = "whole") -> float | None:
        chunks = self.chunks if span == "whole" else self.later
        return sum(chunk.num_tokens for chunk in chunks) / len(chunks) if chunks else None

    def rate(self, span: Span) -> float | None:
        if span == "whole":
            return len(self.tokens) / self.seconds
        num_tokens = sum(chunk.num_tokens for chunk in self.later)
        return num_tokens / (self.seconds - self.first_seconds) if num_tokens else None


class Question(NamedTuple):
    family: str
    prompt: tuple[int, ...]


Ask = Callable[[Sequence[int]], TimedAnswer]


class Peer(NamedTuple):
    name: str
    threads: int
    answer: Ask


class Sample(NamedTuple):
    peer: str
    family: str
    question: int
    round: int
    answer: TimedAnswer


def play(
    peers: Sequence[Peer],
    questions: Sequence[Question],
    num_rounds: int,
    prepare: Callable[[Peer], None],
) -> Iterator[Sample]:
    """Alternate the order, so gradual changes of the machine's speed affect all equally."""
    for number in range(num_rounds):
        for index, question in enumerate(questions):
            is_forwards = (number + index) % 2 == 0
            for peer in peers if is_forwards else reversed(peers):
                prepare(peer)
                answer = peer.answer(question.prompt)
                yield Sample(peer.name, question.family, index, number, answer)


def ratio(
    samples: Sequence[Sample],
    peer: str,
    baseline: str,
    families: Sequence[str],
    span: Span,
    measure: Measure = "rate",
) -> Estimate | None:
    """Compare answers to the same questions in the same rounds, by the median of the rounds.
    Families have equal weights. None if one has no pair."""
    groups = []
    for family in families:
        gains: dict[int, list[float]] = {}
        own = [sample for sample in samples if sample.family == family]
        for question, answer, base in _pairs(own, peer, baseline):
            if (gain := _gain(answer, base, span, measure)) is not None:
                gains.setdefault(question, []).append(gain)
        groups.append([plain.median(rounds) for rounds in gains.values()])
    return statistics.median_ratio(groups) if groups and all(groups) else None


def agreement(samples: Sequence[Sample], peer: str, baseline: str) -> float | None:
    same = [answer.tokens == base.tokens for _, answer, base in _pairs(samples, peer, baseline)]
    return sum(same) / len(same) if same else None


def spread(samples: Sequence[Sample], peer: str) -> float | None:
    """Return the median over questions of slowest / fastest time - 1, or None without repeats."""
    times: dict[int, list[float]] = {}
    for sample in samples:
        if sample.peer == peer:
            times.setdefault(sample.question, []).append(sample.answer.seconds)
    differences = [max(own) / min(own) - 1 for own in times.values() if len(own) > 1]
    return plain.median(differences) if differences else None


def _pairs(
    samples: Sequence[Sample], peer: str, baseline: str
) -> list[tuple[int, TimedAnswer, TimedAnswer]]:
    others = {(s.question, s.round): s.answer for s in samples if s.peer == baseline}
    return [
        (s.question, s.answer, others[s.question, s.round])
        for s in samples
        if s.peer == peer and (s.question, s.round) in others
    ]


def _gain(answer: TimedAnswer, base: TimedAnswer, span: Span, measure: Measure) -> float | None:
    top, bottom = answer.rate(span), base.rate(span)
    if top is None or bottom is None:
        return None
    if measure == "rate":
        return top / bottom
    tpf, base_tpf = answer.tpf(span), base.tpf(span)
    return top / bottom / (tpf / base_tpf) if tpf and base_tpf else None
