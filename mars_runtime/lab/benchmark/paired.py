"""Paired timing: every question to every peer, in alternating order, and ratios pair by pair.

Knows peers only as functions that time themselves; knows no model and no clock.
"""

from __future__ import annotations

import statistics as plain
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from mars_runtime import statistics
from mars_runtime.lab.benchmark.answer import Answer, Span
from mars_runtime.statistics import Estimate

Measure = Literal["rate", "eta"]
"""``rate``: how many times the tokens per second. ``eta``: that over how many times the tokens per
forward of the batch, so 1 means that every forward saved its whole time."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Question:
    """Prompts (token ids) to be answered together. ``family`` groups questions in figures."""

    family: str
    prompts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to answer a question on so many CPU threads; ``answer`` times itself.

    only: numbers of the questions it is asked, in the first round alone; None for all, in each.
    """

    name: str
    threads: int
    answer: Callable[[Question], Answer]
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
    answer: Answer


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
    groups = [
        _question_ratios(samples, peer, baseline, family, span, measure) for family in families
    ]
    return statistics.median_ratio(groups) if groups and all(groups) else None


def agreement(samples: Sequence[Sample], peer: str, baseline: str) -> float | None:
    """Share of rows with the very same tokens."""
    same = [
        one.tokens == other.tokens
        for answer, base in _pairs(samples, peer, baseline)
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


def _question_ratios(
    samples: Sequence[Sample],
    peer: str,
    baseline: str,
    family: str,
    span: Span,
    measure: Measure,
) -> list[float]:
    by_question: dict[int, list[Sample]] = {}
    for one in samples:
        if one.family == family and one.peer in (peer, baseline):
            by_question.setdefault(one.question, []).append(one)
    found = []
    for group in by_question.values():
        ratios = []
        for answer, base in _pairs(group, peer, baseline):
            gain = _gain(answer, base, span, measure)
            if gain is not None:
                ratios.append(gain)
        if ratios:
            found.append(plain.median(ratios))
    return found


def _pairs(samples: Sequence[Sample], peer: str, baseline: str) -> list[tuple[Answer, Answer]]:
    """Answers of both to the same question in the same round."""
    ones = {(s.question, s.round): s.answer for s in samples if s.peer == peer}
    others = {(s.question, s.round): s.answer for s in samples if s.peer == baseline}
    return [(ones[key], others[key]) for key in ones if key in others]


def _gain(answer: Answer, base: Answer, span: Span, measure: Measure) -> float | None:
    top, bottom = answer.rate(span), base.rate(span)
    if top is None or bottom is None:
        return None
    if measure == "rate":
        return top / bottom
    more, fewer = answer.effective_tpf(span), base.effective_tpf(span)
    return top / bottom / (more / fewer) if more and fewer else None


def _pooled_rate(answers: Sequence[Answer]) -> float:
    return sum(one.num_tokens for one in answers) / sum(one.seconds for one in answers)


def _by(samples: Sequence[Sample], key: Callable[[Sample], Key]) -> dict[Key, list[Answer]]:
    groups: dict[Key, list[Answer]] = {}
    for one in samples:
        groups.setdefault(key(one), []).append(one.answer)
    return groups
