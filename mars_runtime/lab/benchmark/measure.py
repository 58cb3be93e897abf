"""Measure a series: warm every peer up, find its threads, play the pairs, look at its memory.

Peers are functions that time themselves; torch is known only for its number of threads.
"""

from __future__ import annotations

import statistics as plain
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.paired import (
    Peer,
    Question,
    Sample,
    best_threads,
    num_answers,
    play,
)
from mars_runtime.lab.benchmark.peers import Ask

if TYPE_CHECKING:
    import torch

NUM_WARM_UP, NUM_TUNING = 2, 4
"""Questions to warm up on, and to choose a peer's number of threads by (half as many of a batch):
the same as are measured later."""

NUM_FIRST_TOKENS = 3
"""Times that the first token of a prompt is waited for."""

SETTLING_SECONDS = 0.02
"""For the threads of the peer before, which may spin a little before they sleep."""

Watch = Callable[[Iterable[Sample], str, int], Iterable[Sample]]
"""Wraps a stream of samples, so many in all, to show how far it has come."""


@dataclass(frozen=True, slots=True)
class Series:
    """One batch size: its peers by name, as functions, and the questions they all answer.

    num_slow: transformers' ways answer so many questions of each family, once; None for all, in
        every round. first: a prompt whose first token is timed by itself, if any. has_memory:
        whether memory at the peak can be told, which asks for weights and caches of torch.
    """

    batch_size: int
    asks: Mapping[str, Ask]
    questions: tuple[Question, ...]
    num_slow: int | None = None
    first: Question | None = None
    has_memory: bool = True

    def some(self, count: int) -> int:
        """``count`` single prompts, or half as many batches."""
        return count if self.batch_size == 1 else count // 2

    def peer(self, name: str, threads: int) -> Peer:
        """A peer, and what it is asked."""
        is_slow = self.num_slow is not None and name in plan.TRANSFORMERS
        only = first_of_each(self.questions, self.num_slow or 0) if is_slow else None
        return Peer(name, threads, self.asks[name], only)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a series gave. threads: each peer's best. peak_bytes: of its first question, where it
    can be told. first_seconds: medians, to the first token of a prompt of ``first_length`` tokens.

    tuning: the samples by which the threads were chosen, in no figure. left_out: a sentence for
    each peer that could not run here.
    """

    batch_size: int
    samples: tuple[Sample, ...]
    threads: dict[str, int]
    peak_bytes: dict[str, int]
    tuning: tuple[Sample, ...] = ()
    left_out: tuple[str, ...] = field(default=())
    first_length: int = 0
    first_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        return list(dict.fromkeys(one.peer for one in self.samples))

    @property
    def families(self) -> list[str]:
        """In order, natural text among them."""
        return list(dict.fromkeys(one.family for one in self.samples))


def measure(
    series: Series,
    threads: Sequence[int],
    num_rounds: int,
    device: torch.device,
    watch: Watch,
) -> Measured:
    """Play ``series``, every peer at the one of ``threads`` that suits it best."""
    asks, left_out = warmed_up(series, threads)
    questions = series.questions
    tuning: list[Sample] = []
    if len(threads) > 1:
        peers = [Peer(name, count, ask) for count in threads for name, ask in asks.items()]
        some = spread_out(questions, series.some(NUM_TUNING))
        tuned = play(peers, some, 1, use_threads)
        tuning = list(watch(tuned, "threads", len(peers) * len(some)))
    chosen = best_threads(tuning) if tuning else dict.fromkeys(asks, threads[0])
    peers = [series.peer(name, chosen[name]) for name in asks]
    played: Iterator[Sample] = play(peers, questions, num_rounds, use_threads)
    total = num_answers(peers, len(questions), num_rounds)
    samples = list(watch(played, f"batch {series.batch_size}", total))
    peaked = peers if series.has_memory else []
    return Measured(
        batch_size=series.batch_size,
        samples=tuple(samples),
        threads=chosen,
        peak_bytes={one.name: _peak_bytes(one, questions[0], device) for one in peaked},
        tuning=tuple(tuning),
        left_out=tuple(left_out),
        first_length=len(series.first.prompts[0]) if series.first else 0,
        first_seconds=first_seconds(peers, series.first) if series.first else {},
    )


def first_seconds(peers: Sequence[Peer], question: Question) -> dict[str, float]:
    """Median seconds to the first token of ``question`` by peer, in alternating order."""
    once = [Peer(one.name, one.threads, one.answer) for one in peers]
    played = list(play(once, [question], NUM_FIRST_TOKENS, use_threads))
    return {
        one.name: plain.median(
            sample.answer.first_seconds for sample in played if sample.peer == one.name
        )
        for one in peers
    }


def warmed_up(series: Series, threads: Sequence[int]) -> tuple[dict[str, Ask], list[str]]:
    """The peers that ran, after a warm-up on every thread count, and why others did not.

    What is ours must run; others differ from version to version and device to device.
    """
    asks: dict[str, Ask] = {}
    left_out = []
    for name, ask in series.asks.items():
        try:
            for count in threads:
                use_threads(Peer(name, count, ask))
                for question in series.questions[: series.some(NUM_WARM_UP)]:
                    ask(question)
        except Exception as error:
            if plan.is_ours(name):
                raise
            left_out.append(f"{name} cannot run here ({type(error).__name__}: {error})")
        else:
            asks[name] = ask
    return asks, left_out


def first_of_each(questions: Sequence[Question], count: int) -> frozenset[int]:
    """The numbers of the first ``count`` questions of each family."""
    seen: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        seen.setdefault(question.family, []).append(number)
    return frozenset(number for own in seen.values() for number in own[:count])


def spread_out(questions: Sequence[Question], count: int) -> list[Question]:
    """At most ``count`` questions, at equal distances, so that families differ."""
    step = max(1, len(questions) // count)
    return list(questions[::step][:count])


def use_threads(peer: Peer) -> None:
    """Switch to the peer's thread count and let the pools settle before the clock starts."""
    import torch

    time.sleep(SETTLING_SECONDS)
    if torch.get_num_threads() != peer.threads:
        torch.set_num_threads(peer.threads)
        torch.ones(256, 256) @ torch.ones(256, 256)


def _peak_bytes(peer: Peer, question: Question, device: torch.device) -> int:
    from mars_runtime.lab.benchmark.memory import peak_bytes

    use_threads(peer)
    return peak_bytes(lambda: peer.answer(question), device)
