"""Measure a series: warm every peer up, find its threads, play the pairs, look at its memory.

Peers are functions that time themselves; torch is known only for its number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mars_runtime.benchmark import plan
from mars_runtime.benchmark.paired import Peer, Question, Sample, best_threads, play
from mars_runtime.benchmark.peers import Ask

if TYPE_CHECKING:
    import torch

NUM_WARM_UP, NUM_TUNING = 2, 4
"""Questions to warm up on, and to choose a peer's number of threads by (half as many of a batch):
the same as are measured later."""

Watch = Callable[[Iterable[Sample], str, int], Iterable[Sample]]
"""Wraps a stream of samples, so many in all, to show how far it has come."""


@dataclass(frozen=True, slots=True)
class Series:
    """One batch size: its peers by name, as functions, and the questions they all answer."""

    batch_size: int
    asks: Mapping[str, Ask]
    questions: tuple[Question, ...]

    def some(self, count: int) -> int:
        """``count`` single prompts, or half as many batches."""
        return count if self.batch_size == 1 else count // 2


@dataclass(frozen=True, slots=True)
class Measured:
    """What a series gave. threads: each peer's best. peak_bytes: of its first question.

    tuning: the samples by which the threads were chosen, in no figure. left_out: a sentence for
    each peer that could not run here.
    """

    batch_size: int
    samples: tuple[Sample, ...]
    threads: dict[str, int]
    peak_bytes: dict[str, int]
    tuning: tuple[Sample, ...] = ()
    left_out: tuple[str, ...] = field(default=())

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
    peers = [Peer(name, chosen[name], ask) for name, ask in asks.items()]
    played: Iterator[Sample] = play(peers, questions, num_rounds, use_threads)
    total = len(peers) * len(questions) * num_rounds
    samples = list(watch(played, f"batch {series.batch_size}", total))
    peaks = {one.name: _peak_bytes(one, questions[0], device) for one in peers}
    return Measured(
        series.batch_size, tuple(samples), chosen, peaks, tuple(tuning), tuple(left_out)
    )


def warmed_up(series: Series, threads: Sequence[int]) -> tuple[dict[str, Ask], list[str]]:
    """The peers that ran, after a warm-up on every thread count, and why others did not.

    What is ours must run; transformers' ways differ from version to version and device to device.
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
            if name not in plan.TRANSFORMERS:
                raise
            left_out.append(f"{name} cannot run here ({type(error).__name__}: {error})")
        else:
            asks[name] = ask
    return asks, left_out


def spread_out(questions: Sequence[Question], count: int) -> list[Question]:
    """At most ``count`` questions, at equal distances, so that families differ."""
    step = max(1, len(questions) // count)
    return list(questions[::step][:count])


def use_threads(peer: Peer) -> None:
    """Switch to the peer's thread count and let the pool settle before the clock starts."""
    import torch

    if torch.get_num_threads() != peer.threads:
        torch.set_num_threads(peer.threads)
        torch.ones(256, 256) @ torch.ones(256, 256)


def _peak_bytes(peer: Peer, question: Question, device: torch.device) -> int:
    from mars_runtime.benchmark.memory import peak_bytes

    use_threads(peer)
    return peak_bytes(lambda: peer.answer(question), device)
