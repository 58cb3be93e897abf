"""Time peers in pairs: all peers answer every question, in alternating order.

A peer is a method of this runtime or another program, such as llama.cpp. It is represented by a
function that answers a question (one or more prompts) and reports when tokens arrived. Ratios of
speed are computed between answers to the same question in the same round. Moments are seconds since
the function was called.
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
"""The part of an answer that a rate covers.

``whole``: from the prompts to the last token. ``decode``: from the moment at which every row has
its first tokens; tokens up to this moment are not counted. Thus ``decode`` excludes prefill in the
same way for every peer.
"""

Measure = Literal["rate", "eta"]
"""The ratio by which two peers are compared.

``rate``: the ratio of tokens per second. ``eta``: the ratio of tokens per second divided by the
ratio of tokens per forward pass. An eta of 1 means that each saved forward pass saved its full
time.
"""

Key = TypeVar("Key")


class Chunk(NamedTuple):
    """A forward pass of a row. moment: when its tokens arrived. num_tokens: may be 0."""

    moment: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TimedRow:
    """The answer to one prompt. tokens: EOS included. chunks: one per forward pass of the row.

    num_draft_forwards: number of forward passes of a draft model. The moments of ``chunks`` include
    the time of these passes.
    """

    tokens: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    num_draft_forwards: int = 0

    @property
    def tpf(self) -> float:
        """Tokens per forward pass of this row, until the row ended."""
        return len(self.tokens) / len(self.chunks)

    @property
    def ttft(self) -> float:
        """Seconds until the row has its first tokens."""
        return next(chunk.moment for chunk in self.chunks if chunk.num_tokens)


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The timed answer to a question. num_forwards: number of forward passes of the batch.

    Raises ValueError if there are no rows, a row is empty, or seconds is not above 0.
    """

    rows: tuple[TimedRow, ...]
    seconds: float
    num_forwards: int

    def __post_init__(self) -> None:
        if not self.rows or not all(row.tokens for row in self.rows) or self.seconds <= 0:
            raise ValueError("An answer needs at least one token in every row and a time above 0.")

    @property
    def num_tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)

    @property
    def first_seconds(self) -> float:
        """Seconds until every row has its first tokens."""
        return max(row.ttft for row in self.rows)

    @property
    def output_id(self) -> str:
        """Hash of the tokens of all rows."""
        return fingerprint([row.tokens for row in self.rows])

    def effective_tpf(self, span: Span = "whole") -> float | None:
        """Return the tokens per forward pass of the batch, divided by the number of rows.

        Every row counts in all passes, even while it waits and after it has ended. Returns None if
        the span has no tokens.
        """
        tokens, forwards = self.num_tokens, self.num_forwards
        if span == "decode":  # the first tokens of all rows arrive with the first forward pass
            tokens, forwards = self._num_later(), forwards - 1
        return tokens / (forwards * len(self.rows)) if tokens and forwards else None

    def decode_seconds(self) -> float | None:
        """Return the seconds of the decode span, or None if the span has no tokens."""
        return self.seconds - self.first_seconds if self._num_later() else None

    def rate(self, span: Span) -> float | None:
        """Return the tokens per second of all rows, or None if the span has no tokens."""
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
    """Build a row from the moments at which its forward passes ended.

    counts: number of tokens of each pass, by default 1. The rest of ``tokens`` is padding, which is
    dropped.
    """
    counts = [1] * len(moments) if counts is None else counts
    chunks = tuple(map(Chunk, moments, counts))
    return TimedRow(tuple(tokens[: sum(counts)]), chunks)


def fingerprint(rows: Sequence[Sequence[int]]) -> str:
    """Return a short hash of the tokens of all rows and of the boundaries between rows."""
    text = ";".join(",".join(map(str, row)) for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """A question: prompts, as token ids, that are answered together.

    family: the task family under which figures are reported.
    """

    family: str
    prompts: tuple[tuple[int, ...], ...]


Ask = Callable[[PromptGroup], TimedAnswer]
"""A function that answers the prompts of a question and measures the time."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A method or program to measure, with a number of CPU threads.

    only: numbers of the questions that the peer answers, in the first round only. With None, the
    peer answers all questions in every round.
    """

    name: str
    threads: int
    answer: Ask
    only: frozenset[int] | None = None

    def is_measured(self, question: int, round_number: int) -> bool:
        return self.only is None or (round_number == 0 and question in self.only)


@dataclass(frozen=True, slots=True)
class Sample:
    """A timed answer: one peer answered one question in one round."""

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
    """Let all peers answer all questions ``num_rounds`` times; yield each timed answer.

    The order of the peers alternates from question to question. Therefore gradual changes of the
    machine's speed affect all peers equally. ``prepare`` is called before each answer and not
    timed.
    """
    for number in range(num_rounds):
        for index, question in enumerate(questions):
            is_forwards = (number + index) % 2 == 0
            for peer in peers if is_forwards else reversed(peers):
                if peer.is_measured(index, number):
                    prepare(peer)
                    answer = peer.answer(question)
                    yield Sample(peer.name, peer.threads, question.family, index, number, answer)


def num_answers(peers: Sequence[Peer], num_questions: int, num_rounds: int) -> int:
    """Return the number of samples that ``play`` yields."""
    return sum(
        peer.is_measured(index, number)
        for peer in peers
        for index in range(num_questions)
        for number in range(num_rounds)
    )


def best_threads(samples: Sequence[Sample]) -> dict[str, int]:
    """Return, for each peer, the number of threads with the most tokens per second."""
    groups = _by(samples, lambda sample: (sample.peer, sample.threads))
    rates = {key: _pooled_rate(answers) for key, answers in groups.items()}
    return dict(
        sorted(rates, key=lambda key: rates[key])
    )  # dict() uses the last entry of each peer, which is the fastest


def fastest(samples: Sequence[Sample], peers: Sequence[str]) -> str | None:
    """Return which of ``peers`` has the most tokens per second, or None if there are no samples."""
    own = [sample for sample in samples if sample.peer in peers]
    groups = _by(own, lambda sample: sample.peer)
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
    """Compare two peers by their answers to the same questions in the same rounds.

    The ratio of a question is the median over its rounds, and families have equal weight (see
    ``statistics.median_ratio``). Returns None if one of the families has no pair of answers.
    """
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
    """Return the share of rows with the same tokens from both peers, or None without rows."""
    same = [
        row.tokens == base_row.tokens
        for _, answer, base in _pairs(samples, peer, baseline)
        for row, base_row in zip(answer.rows, base.rows, strict=True)
    ]
    return sum(same) / len(same) if same else None


def spread(samples: Sequence[Sample], peer: str) -> float | None:
    """Return how much the times of repeated answers of a peer differ.

    For each question, this is the slowest time divided by the fastest time, minus 1. Returns the
    median over questions, or None if no question was repeated.
    """
    own = [sample for sample in samples if sample.peer == peer]
    by_question = _by(own, lambda sample: sample.question)
    times = [[answer.seconds for answer in answers] for answers in by_question.values()]
    differences = [max(seconds) / min(seconds) - 1 for seconds in times if len(seconds) > 1]
    return plain.median(differences) if differences else None


def _pairs(
    samples: Sequence[Sample], peer: str, baseline: str
) -> list[tuple[int, TimedAnswer, TimedAnswer]]:
    """Return (question number, answer of ``peer``, answer of ``baseline``).

    The list has an item for each question and round that both peers answered.
    """
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
    tpf, base_tpf = answer.effective_tpf(span), base.effective_tpf(span)
    return top / bottom / (tpf / base_tpf) if tpf and base_tpf else None


def _pooled_rate(answers: Sequence[TimedAnswer]) -> float:
    seconds = sum(answer.seconds for answer in answers)
    return sum(answer.num_tokens for answer in answers) / seconds


def _by(samples: Sequence[Sample], key: Callable[[Sample], Key]) -> dict[Key, list[TimedAnswer]]:
    groups: dict[Key, list[TimedAnswer]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample.answer)
    return groups
