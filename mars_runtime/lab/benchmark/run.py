"""Carries out the plan of a benchmark: every series, then forwards and the machine.

A series is one batch size: every peer is warmed up, takes the number of threads that suits it, and
answers every question, pair by pair.
"""

from __future__ import annotations

import statistics as plain
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.progress import track

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.figures import Compared, Measured, compare_all
from mars_runtime.lab.benchmark.paired import (
    Ask,
    Peer,
    Question,
    Sample,
    best_threads,
    num_answers,
    play,
    spread,
)
from mars_runtime.lab.benchmark.peers import Peers
from mars_runtime.lab.benchmark.plan import BenchmarkPlan
from mars_runtime.lab.benchmark.report import Findings
from mars_runtime.lab.benchmark.targets import Target, load_target
from mars_runtime.lab.benchmark.forward import (
    CONTEXT,
    WIDTHS,
    forward_times,
    measure_limits,
    rho_curve,
    work_of,
)
from mars_runtime.machine import num_cores
from mars_runtime.provenance import Others, Quiet, provenance

NUM_CURVE_ROUNDS = 30
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

    num_slow: as in Extent. first: a prompt whose first token is timed by itself, if
        any.
    """

    batch_size: int
    asks: Mapping[str, Ask]
    questions: tuple[Question, ...]
    num_slow: int | None = None
    first: Question | None = None

    def some(self, count: int) -> int:
        """``count`` single prompts, or half as many batches."""
        return count if self.batch_size == 1 else count // 2

    def peer(self, name: str, threads: int) -> Peer:
        """A peer, and what it is asked."""
        is_slow = self.num_slow is not None and name in plan.TRANSFORMERS
        only = first_of_each(self.questions, self.num_slow or 0) if is_slow else None
        return Peer(name, threads, self.asks[name], only)


def perform(wanted: BenchmarkPlan, console: Console) -> Findings:
    """Measure everything. Raises the errors that ``run_or_say`` knows."""
    target = load_target(wanted)
    model, device = target.model, target.device
    wanted = wanted if device.type == "cpu" else replace(wanted, threads=wanted.threads[:1])

    def watch(samples: Iterable[Sample], what: str, total: int) -> Iterable[Sample]:
        # Redrawing while an answer is timed would take from its time.
        return track(samples, what, total, console=console, auto_refresh=False)

    work = work_of(model)
    most = max(wanted.threads)
    set_threads(most)
    before = measure_limits(device, model.product_dtype, work.weight_bytes)
    others = Others()
    measured: list[Measured] = []
    origin = provenance(*wanted.told.get("drafts", ()))
    with Peers(target, wanted.ways, wanted.transformers) as peers:
        for batch_size in wanted.batch_sizes:
            series, versions = series_of(wanted, target, peers, batch_size)
            origin["versions"] |= versions
            measured.append(measure(series, wanted.threads, wanted.num_rounds, watch))
    threads = measured[0].threads[plan.AR]
    set_threads(threads)
    limits = measure_limits(device, model.product_dtype, work.weight_bytes)
    return Findings(
        origin=origin,
        subject=target.facts,
        asked=wanted.told,
        note=target.note,
        quiet=Quiet(
            cores=num_cores(),
            load_before=wanted.load_before,
            others=others.share(),
            ar_spread=spread(measured[0].samples, plan.AR),
        ),
        limits=limits.better(before) if threads == most else limits,
        work=work,
        forward_threads=threads,
        curves={
            rows: rho_curve(rows, forward_times(model, rows, WIDTHS, CONTEXT, NUM_CURVE_ROUNDS))
            for rows in wanted.batch_sizes
        },
        series=measured,
        compared=_compared(measured, wanted.cursor, has_text=not target.note),
    )


def _compared(
    measured: Sequence[Measured], cursor: str | None, *, has_text: bool
) -> list[Compared]:
    """All comparisons; where the text means nothing, whether it agrees means nothing either."""
    found = [one for each in measured for one in compare_all(each, cursor)]
    return found if has_text else [replace(one, agreement=None) for one in found]


def series_of(
    wanted: BenchmarkPlan, target: Target, peers: Peers, batch_size: int
) -> tuple[Series, dict[str, str]]:
    """The peers and questions of one batch size, and versions of peers from elsewhere."""
    questions = plan.questions(target.prompts, batch_size, wanted.num_prompts, wanted.seed)
    longest = max(len(prompt) for question in questions for prompt in question.prompts)
    asks = peers.of(batch_size, longest)
    versions: dict[str, str] = {}
    if wanted.cursor is not None and batch_size > 1 and wanted.cache_blocks:
        asks |= peers.other_caches(wanted.ways[wanted.cursor], wanted.cache_blocks)
    if wanted.llama_cpp is not None and batch_size == 1:
        room = max(longest, wanted.num_first)
        asks[plan.LLAMA_CPP], versions = peers.llama(wanted.llama_cpp, room)
    first = plan.first_question(questions, wanted.num_first) if batch_size == 1 else None
    series = Series(batch_size, asks, tuple(questions), wanted.num_slow, first)
    return series, versions


def measure(
    series: Series,
    threads: Sequence[int],
    num_rounds: int,
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
    return Measured(
        batch_size=series.batch_size,
        samples=tuple(samples),
        threads=chosen,
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
                set_threads(count)
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
    """Switch to the peer's thread count."""
    set_threads(peer.threads)


def set_threads(count: int) -> None:
    """Switch to so many threads and let the pools settle before the clock starts."""
    time.sleep(SETTLING_SECONDS)
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
        torch.ones(256, 256) @ torch.ones(256, 256)
