"""Paired timing: every question to every peer, in alternating order, and ratios pair by pair.

A peer is a way of decoding that is measured: of this runtime, of transformers, of llama.cpp.
It is known here only as a function that answers a question (a batch of prompts)
and times itself. What it answers are facts, from which every figure is derived; moments are seconds
since the call.
"""

from __future__ import annotations

import hashlib
import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from mars_runtime import statistics
from mars_runtime.lab.evaluation.measure import survival as survival_of
from mars_runtime.statistics import Estimate

Span = Literal["decode", "whole"]
"""``whole``: from prompts to last token. ``decode``: from the moment when every row had its first
tokens, those not counted, so prefill is apart for every peer alike."""

Measure = Literal["rate", "eta"]
"""``rate``: how many times the tokens per second. ``eta``: that over how many times the tokens per
forward of the batch, so 1 means that every forward saved its whole time."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one forward gave one row: ``num_tokens`` (0 where it idled or was refused), of
    ``num_offered`` proposals (tokens that it could have given), there at ``moment``."""

    moment: float
    num_tokens: int
    num_offered: int = 1


@dataclass(frozen=True, slots=True)
class TimedRow:
    """One answered prompt: its tokens, EOS included, and the forwards that it took part in.
    num_draft_forwards: of a draft model beside them, whose time is in the moments."""

    tokens: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    num_draft_forwards: int = 0

    @property
    def tpf(self) -> float:
        """Tokens per forward of this row, to its end."""
        return len(self.tokens) / len(self.chunks)

    @property
    def ttft(self) -> float:
        """Seconds to its first tokens."""
        return next(chunk.moment for chunk in self.chunks if chunk.num_tokens)

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first ones; None where one forward gave all."""
        given = [chunk for chunk in self.chunks if chunk.num_tokens]
        later = sum(chunk.num_tokens for chunk in given[1:])
        return (given[-1].moment - given[0].moment) / later if later else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between chunks of text: what a reader waits, however many tokens then come."""
        moments = [chunk.moment for chunk in self.chunks if chunk.num_tokens]
        return tuple(b - a for a, b in pairwise(moments))


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """All rows of a question. num_forwards: model calls that could give tokens, whatever row they
    served. Raises ValueError for an answer that says nothing."""

    rows: tuple[TimedRow, ...]
    seconds: float
    num_forwards: int

    def __post_init__(self) -> None:
        if not self.rows or not all(row.tokens for row in self.rows) or self.seconds <= 0:
            raise ValueError("An answer has tokens in every row, and takes time.")

    @property
    def num_tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)

    @property
    def first_seconds(self) -> float:
        """When every row had its first tokens."""
        return max(row.ttft for row in self.rows)

    def effective_tpf(self, span: Span = "whole") -> float | None:
        """Tokens a forward of the whole batch, divided among its rows: rows that wait or have ended
        count. None for a decode span in which nothing came."""
        tokens, forwards = self.num_tokens, self.num_forwards
        if span == "decode":  # the first tokens of all rows come with the first forward
            tokens, forwards = self._num_later(), forwards - 1
        return tokens / (forwards * len(self.rows)) if tokens and forwards else None

    @property
    def output_id(self) -> str:
        """Equal for two answers exactly when all their tokens are."""
        return fingerprint([row.tokens for row in self.rows])

    def decode_seconds(self) -> float | None:
        """Seconds of the decode span; None where nothing came after the first tokens."""
        return self.seconds - self.first_seconds if self._num_later() else None

    def rate(self, span: Span) -> float | None:
        """Tokens a second over all rows; None for a decode span in which nothing came."""
        if span == "whole":
            return self.num_tokens / self.seconds
        seconds = self.decode_seconds()
        return self._num_later() / seconds if seconds else None

    def _num_later(self) -> int:
        start = self.first_seconds
        return sum(
            chunk.num_tokens for row in self.rows for chunk in row.chunks if chunk.moment > start
        )


def one_row(
    tokens: Sequence[int], moments: Sequence[float], counts: Sequence[int] | None = None
) -> TimedRow:
    """A row whose forwards ended at ``moments`` and gave one token each, or ``counts``; tokens
    behind the last that was given (padding) are left out."""
    given = list(counts) if counts is not None else [1] * len(moments)
    chunks = tuple(Chunk(at, count, count) for at, count in zip(moments, given, strict=True))
    return TimedRow(tuple(tokens[: sum(given)]), chunks)


def survival(rows: Sequence[TimedRow]) -> list[float]:
    """For each place in a forward, of the forwards that proposed there the share that gave a token
    there: acceptance by position."""
    chunks = [chunk for row in rows for chunk in row.chunks]
    return survival_of((chunk.num_tokens, chunk.num_offered) for chunk in chunks)


def fingerprint(rows: Sequence[Sequence[int]]) -> str:
    """A short hash of the tokens of some rows; their borders count."""
    text = ";".join(",".join(map(str, row)) for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Question:
    """Prompts (token ids) to be answered together. ``family`` groups questions in figures."""

    family: str
    prompts: tuple[tuple[int, ...], ...]


Ask = Callable[[Question], TimedAnswer]
"""Answers a question and times itself."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to answer a question, on so many CPU threads.

    only: numbers of the questions it is asked, in the first round alone; None for all, in each.
    """

    name: str
    threads: int
    answer: Ask
    only: frozenset[int] | None = None

    def is_asked(self, question: int, round_number: int) -> bool:
        """Whether it answers this question in this round."""
        return self.only is None or (round_number == 0 and question in self.only)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one peer made of one question (by its number) in one round."""

    peer: str
    threads: int
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
    """Time every question with every peer that is asked it, ``num_rounds`` times.

    Peers follow each other on the same question, forwards and backwards by turns, so that a drift
    of the machine hits all alike. ``prepare`` is called before each answer, outside the clock.
    """
    for number in range(num_rounds):
        for index, question in enumerate(questions):
            is_forwards = (number + index) % 2 == 0
            for peer in peers if is_forwards else reversed(peers):
                if not peer.is_asked(index, number):
                    continue
                prepare(peer)
                answer = peer.answer(question)
                yield Sample(peer.name, peer.threads, question.family, index, number, answer)


def num_answers(peers: Sequence[Peer], num_questions: int, num_rounds: int) -> int:
    """How many samples ``play`` will give."""
    return sum(
        peer.is_asked(index, number)
        for peer in peers
        for index in range(num_questions)
        for number in range(num_rounds)
    )


def best_threads(samples: Sequence[Sample]) -> dict[str, int]:
    """For each peer the thread count with the most tokens per second over all given samples."""
    groups = _by(samples, lambda one: (one.peer, one.threads))
    rates = {key: _pooled_rate(answers) for key, answers in groups.items()}
    return dict(sorted(rates, key=lambda key: rates[key]))  # the fastest comes last and stays


def fastest(samples: Sequence[Sample], peers: Sequence[str]) -> str | None:
    """The peer among ``peers`` with the most tokens per second over all given samples."""
    groups = _by([one for one in samples if one.peer in peers], lambda one: one.peer)
    rates = {peer: _pooled_rate(answers) for peer, answers in groups.items()}
    return max(rates, key=lambda peer: rates[peer]) if rates else None


def ratio(
    samples: Sequence[Sample],
    peer: str,
    baseline: str,
    families: Sequence[str],
    span: Span,
    measure: Measure = "rate",
) -> Estimate | None:
    """``measure`` of ``peer`` over ``baseline``: pairs of the same question and round.

    A question's ratio is the median over its rounds; families count alike (``median_ratio``). None
    where a family has no pair.
    """
    groups = []
    for family in families:
        gains: dict[int, list[float]] = {}
        own = [one for one in samples if one.family == family]
        for question, answer, base in _pairs(own, peer, baseline):
            if (gain := _gain(answer, base, span, measure)) is not None:
                gains.setdefault(question, []).append(gain)
        groups.append([plain.median(rounds) for rounds in gains.values()])
    return statistics.median_ratio(groups) if groups and all(groups) else None


def agreement(samples: Sequence[Sample], peer: str, baseline: str) -> float | None:
    """Share of rows with the very same tokens."""
    same = [
        one.tokens == other.tokens
        for _, answer, base in _pairs(samples, peer, baseline)
        for one, other in zip(answer.rows, base.rows, strict=True)
    ]
    return sum(same) / len(same) if same else None


def spread(samples: Sequence[Sample], peer: str) -> float | None:
    """How far the rounds of a peer lie apart: slowest over fastest minus 1 of the same question,
    median over questions. None with a single round."""
    rounds = _by([one for one in samples if one.peer == peer], lambda one: one.question)
    apart = [
        max(one.seconds for one in own) / min(one.seconds for one in own) - 1
        for own in rounds.values()
        if len(own) > 1
    ]
    return plain.median(apart) if apart else None


def _pairs(
    samples: Sequence[Sample], peer: str, baseline: str
) -> list[tuple[int, TimedAnswer, TimedAnswer]]:
    """The number of a question and the answers of both to it in the same round."""
    others = {(s.question, s.round): s.answer for s in samples if s.peer == baseline}
    return [
        (one.question, one.answer, others[one.question, one.round])
        for one in samples
        if one.peer == peer and (one.question, one.round) in others
    ]


def _gain(answer: TimedAnswer, base: TimedAnswer, span: Span, measure: Measure) -> float | None:
    top, bottom = answer.rate(span), base.rate(span)
    if top is None or bottom is None:
        return None
    if measure == "rate":
        return top / bottom
    more, fewer = answer.effective_tpf(span), base.effective_tpf(span)
    return top / bottom / (more / fewer) if more and fewer else None


def _pooled_rate(answers: Sequence[TimedAnswer]) -> float:
    return sum(one.num_tokens for one in answers) / sum(one.seconds for one in answers)


def _by(samples: Sequence[Sample], key: Callable[[Sample], Key]) -> dict[Key, list[TimedAnswer]]:
    groups: dict[Key, list[TimedAnswer]] = {}
    for one in samples:
        groups.setdefault(key(one), []).append(one.answer)
    return groups
