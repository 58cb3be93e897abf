"""Paired timing: every peer answers every question in alternating order; ratios are taken by pair.

A peer is anything that decodes: a method of this runtime, transformers, llama.cpp. Here it is a
function that answers a question (a batch of prompts) and reports when its tokens arrived. Moments
are seconds since the call.
"""

from __future__ import annotations

import hashlib
import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from mars_runtime import statistics
from mars_runtime.statistics import Estimate

Span = Literal["decode", "whole"]
"""``whole``: from the prompts to the last token. ``decode``: from the moment at which every row has
its first tokens, which are not counted; this excludes prefill for every peer alike."""

Measure = Literal["rate", "eta"]
"""``rate``: ratio of tokens per second. ``eta``: that ratio over the ratio of tokens per forward
pass, so 1 means that every saved forward pass saved its whole time."""

Key = TypeVar("Key")


class Chunk(NamedTuple):
    """What a forward pass added to a row: ``num_tokens`` (0 if it waited) at ``moment``."""

    moment: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TimedRow:
    """An answered prompt: its tokens, EOS included, and the forward passes that it took part in.

    num_draft_forwards: forward passes of a draft model, whose time is in the moments.
    """

    tokens: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    num_draft_forwards: int = 0

    @property
    def tpf(self) -> float:
        """Tokens per forward pass of this row, up to its end."""
        return len(self.tokens) / len(self.chunks)

    @property
    def ttft(self) -> float:
        """Seconds to its first tokens."""
        return next(chunk.moment for chunk in self.chunks if chunk.num_tokens)


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """All rows of a question.

    num_forwards: forward passes for any of the rows. Raises ValueError for an answer with an empty
    row.
    """

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
        """Seconds until every row has its first tokens."""
        return max(row.ttft for row in self.rows)

    @property
    def output_id(self) -> str:
        """A hash of all tokens."""
        return fingerprint([row.tokens for row in self.rows])

    def effective_tpf(self, span: Span = "whole") -> float | None:
        """Return tokens per forward pass of the batch and row; rows that wait or have ended count.

        None for a decode span without tokens.
        """
        tokens, forwards = self.num_tokens, self.num_forwards
        if span == "decode":  # the first tokens of all rows arrive with the first forward pass
            tokens, forwards = self._num_later(), forwards - 1
        return tokens / (forwards * len(self.rows)) if tokens and forwards else None

    def decode_seconds(self) -> float | None:
        """Return the seconds of the decode span; None if it has no tokens."""
        return self.seconds - self.first_seconds if self._num_later() else None

    def rate(self, span: Span) -> float | None:
        """Return tokens per second over all rows; None for a decode span without tokens."""
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
    """Return a row whose forward passes ended at ``moments`` with one token, or ``counts``, each.

    Tokens beyond these counts are padding and dropped.
    """
    counts = [1] * len(moments) if counts is None else counts
    chunks = tuple(map(Chunk, moments, counts))
    return TimedRow(tuple(tokens[: sum(counts)]), chunks)


def fingerprint(rows: Sequence[Sequence[int]]) -> str:
    """Return a short hash of the tokens of some rows, which depends on where a row ends."""
    text = ";".join(",".join(map(str, row)) for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """Prompts (token ids) that are answered together. ``family`` groups questions in figures."""

    family: str
    prompts: tuple[tuple[int, ...], ...]


Ask = Callable[[PromptGroup], TimedAnswer]
"""Answers a question and times itself."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A function that answers questions, on a number of CPU threads.

    only: numbers of the questions that it answers, in the first round; None for all, in each round.
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
    """A peer's answer to a question (by its number) in a round."""

    peer: str
    threads: int
    family: str
    question: int
    round: int
    answer: TimedAnswer


def play(
    peers: Sequence[Peer],
    questions: Sequence[PromptGroup],
    num_rounds: int,
    prepare: Callable[[Peer], None],
) -> Iterator[Sample]:
    """Time every question with every peer that answers it, ``num_rounds`` times.

    The order of the peers alternates from question to question, so that a slow change of the
    machine's speed affects all alike. ``prepare`` runs before each answer and is not timed.
    """
    for number in range(num_rounds):
        for index, question in enumerate(questions):
            is_forwards = (number + index) % 2 == 0
            for peer in peers if is_forwards else reversed(peers):
                if peer.is_asked(index, number):
                    prepare(peer)
                    answer = peer.answer(question)
                    yield Sample(peer.name, peer.threads, question.family, index, number, answer)


def num_answers(peers: Sequence[Peer], num_questions: int, num_rounds: int) -> int:
    """Return the number of samples that ``play`` yields."""
    return sum(
        peer.is_asked(index, number)
        for peer in peers
        for index in range(num_questions)
        for number in range(num_rounds)
    )


def best_threads(samples: Sequence[Sample]) -> dict[str, int]:
    """Return the number of threads with the most tokens per second, for each peer."""
    groups = _by(samples, lambda one: (one.peer, one.threads))
    rates = {key: _pooled_rate(answers) for key, answers in groups.items()}
    return dict(sorted(rates, key=lambda key: rates[key]))  # the fastest is last and overrides


def fastest(samples: Sequence[Sample], peers: Sequence[str]) -> str | None:
    """Return the one of ``peers`` with the most tokens per second; None if none has samples."""
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
    """Return ``measure`` of ``peer`` over ``baseline``, from pairs of one question and round.

    A question's ratio is the median over its rounds; families have equal weight
    (``median_ratio``). None if a family has no pair.
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
    """Return the share of rows with the same tokens; None without pairs."""
    same = [
        one.tokens == other.tokens
        for _, answer, base in _pairs(samples, peer, baseline)
        for one, other in zip(answer.rows, base.rows, strict=True)
    ]
    return sum(same) / len(same) if same else None


def spread(samples: Sequence[Sample], peer: str) -> float | None:
    """Return how far the rounds of a peer differ: the median over questions of slowest over fastest
    minus 1. None for a single round."""
    rounds = _by([one for one in samples if one.peer == peer], lambda one: one.question)
    differences = [
        max(one.seconds for one in own) / min(one.seconds for one in own) - 1
        for own in rounds.values()
        if len(own) > 1
    ]
    return plain.median(differences) if differences else None


def _pairs(
    samples: Sequence[Sample], peer: str, baseline: str
) -> list[tuple[int, TimedAnswer, TimedAnswer]]:
    """Return the number of each question with the answers of both in the same round."""
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
    own, other = answer.effective_tpf(span), base.effective_tpf(span)
    return top / bottom / (own / other) if own and other else None


def _pooled_rate(answers: Sequence[TimedAnswer]) -> float:
    return sum(one.num_tokens for one in answers) / sum(one.seconds for one in answers)


def _by(samples: Sequence[Sample], key: Callable[[Sample], Key]) -> dict[Key, list[TimedAnswer]]:
    groups: dict[Key, list[TimedAnswer]] = {}
    for one in samples:
        groups.setdefault(key(one), []).append(one.answer)
    return groups
