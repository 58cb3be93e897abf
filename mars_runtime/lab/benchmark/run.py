"""Run a planned benchmark: measure every series, then the cost of forward passes.

In a series, all peers are warmed up, the fastest number of threads is chosen for each peer, and
then all peers answer every question in alternating order.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.progress import track

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.figures import Compared, SeriesSamples, compare_all
from mars_runtime.lab.benchmark.forward import (
    CONTEXT,
    WIDTHS,
    bandwidth,
    forward_times,
    rho_curve,
    work_of,
)
from mars_runtime.lab.benchmark.paired import (
    Ask,
    Peer,
    PromptGroup,
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
from mars_runtime.machine import num_cores
from mars_runtime.provenance import Others, Quiet, provenance

NUM_CURVE_ROUNDS = 30
NUM_WARM_UP, NUM_TUNING = 2, 4
"""Number of questions for the warm-up, and for choosing the threads; half as many for batches."""
SETTLING_SECONDS = 0.02
"""Pause before each answer, until idle threads of the previous peer have stopped spinning."""
BUSY = "while True: pass"
BUSY_SETTLING_SECONDS = 0.5

Watch = Callable[[Iterable[Sample], str, int], Iterable[Sample]]
"""A function (samples, label, number of samples) that yields the samples and shows progress."""


@dataclass(frozen=True, slots=True)
class Series:
    """The peers and questions of one batch size.

    asks: name of a peer -> function that answers questions. num_slow: see ``plan.Extent``.
    """

    batch_size: int
    asks: Mapping[str, Ask]
    questions: tuple[PromptGroup, ...]
    num_slow: int | None = None

    def some(self, count: int) -> int:
        """Return ``count`` for single prompts, or half of ``count`` for batches."""
        return count if self.batch_size == 1 else count // 2

    def peer(self, name: str, threads: int) -> Peer:
        """Return a peer. In transformers, it answers at most ``num_slow`` questions per family."""
        is_slow = self.num_slow is not None and name in plan.TRANSFORMERS
        only = first_of_each(self.questions, self.num_slow or 0) if is_slow else None
        return Peer(name, threads, self.asks[name], only)


def perform(wanted: BenchmarkPlan, console: Console) -> Findings:
    """Run a benchmark and return its result. Raises the errors that ``run_or_report`` handles."""
    target = load_target(wanted)
    model, device = target.model, target.device
    wanted = wanted if device.type == "cpu" else replace(wanted, threads=wanted.threads[:1])

    def watch(samples: Iterable[Sample], label: str, total: int) -> Iterable[Sample]:
        # No automatic refresh: a refresh in the background would slow down a timed answer.
        return track(samples, label, total, console=console, auto_refresh=False)

    work = work_of(model)
    most = max(wanted.threads)
    set_threads(most)
    speeds = [bandwidth(device, model.product_dtype, work.weight_bytes)]
    others = Others()
    measured: list[SeriesSamples] = []
    origin = provenance(*wanted.arguments.get("drafts", ()))
    with Peers(target, wanted.methods, wanted.transformers) as peers:
        for batch_size in wanted.batch_sizes:
            series, versions = series_of(wanted, target, peers, batch_size)
            origin["versions"] |= versions
            measured.append(measure(series, wanted.threads, wanted.num_rounds, watch))
    threads = measured[0].threads[plan.AR]
    set_threads(threads)
    if threads != most:
        speeds.clear()
    speeds.append(bandwidth(device, model.product_dtype, work.weight_bytes))
    return Findings(
        origin=origin,
        subject=target.facts,
        arguments=wanted.arguments,
        note=target.note,
        quiet=Quiet(
            cores=num_cores(),
            load_before=wanted.load_before,
            others=others.share(),
            ar_spread=spread(measured[0].samples, plan.AR),
        ),
        bytes_per_second=max(speeds),
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
    measured: Sequence[SeriesSamples], cursor: str | None, *, has_text: bool
) -> list[Compared]:
    """Return all comparisons. has_text: False for random weights; ``agreement`` is then None."""
    compared = [comparison for series in measured for comparison in compare_all(series, cursor)]
    return compared if has_text else [replace(c, agreement=None) for c in compared]


def series_of(
    wanted: BenchmarkPlan, target: Target, peers: Peers, batch_size: int
) -> tuple[Series, dict[str, str]]:
    """Return the series of one batch size, and the versions of the other engines in this series."""
    questions = plan.questions(target.prompts, batch_size, wanted.num_prompts, wanted.seed)
    longest = max(len(prompt) for question in questions for prompt in question.prompts)
    asks = peers.of(batch_size, longest)
    versions: dict[str, str] = {}
    if wanted.cursor is not None and batch_size > 1 and wanted.cache_blocks:
        asks |= peers.other_caches(wanted.methods[wanted.cursor], wanted.cache_blocks)
    if batch_size == 1:
        for engine, interpreter in wanted.engines.items():
            asks[engine.name], added = peers.engine(engine, interpreter, longest)
            versions |= added
    return Series(batch_size, asks, tuple(questions), wanted.num_slow), versions


def measure(series: Series, threads: Sequence[int], num_rounds: int, watch: Watch) -> SeriesSamples:
    """Measure a series. Each peer uses the value in ``threads`` with which it is fastest."""
    asks, left_out = warmed_up(series, threads)
    questions = series.questions
    chosen = dict.fromkeys(asks, threads[0])
    if len(threads) > 1:
        peers = [Peer(name, count, ask) for count in threads for name, ask in asks.items()]
        some = spread_out(questions, series.some(NUM_TUNING))
        tuned = play(peers, some, 1, use_threads)
        chosen = best_threads(list(watch(tuned, "threads", len(peers) * len(some))))
    peers = [series.peer(name, chosen[name]) for name in asks]
    played = play(peers, questions, num_rounds, use_threads)
    total = num_answers(peers, len(questions), num_rounds)
    samples = tuple(watch(played, f"batch {series.batch_size}", total))
    return SeriesSamples(series.batch_size, samples, chosen, tuple(left_out))


def warmed_up(series: Series, threads: Sequence[int]) -> tuple[dict[str, Ask], list[str]]:
    """Warm up every peer; return the peers that ran, and a sentence for each peer that failed.

    Other programs may fail, because versions and devices differ. Errors of this runtime are raised.
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
            left_out.append(f"{name} failed in the warm-up ({type(error).__name__}: {error})")
        else:
            asks[name] = ask
    return asks, left_out


def first_of_each(questions: Sequence[PromptGroup], count: int) -> frozenset[int]:
    """Return the numbers of the first ``count`` questions of each family."""
    numbers: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        numbers.setdefault(question.family, []).append(number)
    return frozenset(number for family in numbers.values() for number in family[:count])


def spread_out(questions: Sequence[PromptGroup], count: int) -> list[PromptGroup]:
    """Return at most ``count`` questions, evenly spaced so that they cover several families."""
    step = max(1, len(questions) // count)
    return list(questions[::step][:count])


def use_threads(peer: Peer) -> None:
    set_threads(peer.threads)


def set_threads(count: int) -> None:
    """Wait until other threads are idle, then let torch start and use ``count`` threads."""
    time.sleep(SETTLING_SECONDS)
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)
        torch.ones(256, 256) @ torch.ones(256, 256)


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run ``count`` processes that keep one core busy each; end them on exit."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        time.sleep(BUSY_SETTLING_SECONDS if count else 0.0)
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
