"""Carries out an order: loads what is decoded, measures every series, forwards and the machine.

Knows all the parts and how they follow each other; what each does is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import track

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.compare import Compared, compare_all
from mars_runtime.lab.benchmark.contenders import Contenders
from mars_runtime.lab.benchmark.document import Findings
from mars_runtime.lab.benchmark.measure import Measured, Series, measure, use_threads
from mars_runtime.lab.benchmark.order import Order
from mars_runtime.lab.benchmark.paired import Peer, Question, Sample, spread
from mars_runtime.lab.benchmark.subjects import Subject, load_subject
from mars_runtime.lab.profiling.forward import (
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


def perform(order: Order, console: Console) -> Findings:
    """Measure everything. Raises the errors that ``run_or_say`` knows."""
    subject = load_subject(order)
    device = subject.target.device
    is_cpu = device.type == "cpu"
    order = order if is_cpu else replace(order, threads=order.threads[:1])

    def watch(samples: Iterable[Sample], what: str, total: int) -> Iterator[Sample]:
        # Redrawing while an answer is timed would take from its time.
        return iter(track(samples, what, total, console=console, auto_refresh=False))

    others = Others()
    series: list[Measured] = []
    origin = provenance(*order.told.get("drafts", ()))
    with Contenders(subject.target, order.ways) as contenders:
        for batch_size in order.batch_sizes:
            wanted, versions = series_of(order, subject, contenders, batch_size)
            origin["versions"] |= versions
            series.append(measure(wanted, order.threads, order.num_rounds, device, watch))
    threads = series[0].threads[plan.AR]
    use_threads(Peer(plan.AR, threads, lambda question: _never()))
    model = subject.model
    load = work_of(model)
    return Findings(
        origin=origin,
        subject=subject.facts,
        asked=order.told,
        note=subject.note,
        quiet=Quiet(
            cores=num_cores(),
            load_before=order.load_before,
            others=others.share(),
            ar_spread=spread(series[0].samples, plan.AR),
        ),
        limits=measure_limits(device, model.product_dtype, load.weight_bytes),
        load=load,
        forward_threads=threads,
        curves={
            rows: rho_curve(rows, forward_times(model, rows, WIDTHS, CONTEXT, NUM_CURVE_ROUNDS))
            for rows in order.batch_sizes
        },
        series=series,
        compared=_compared(series, order.cursor, has_text=not subject.note),
    )


def _compared(series: Sequence[Measured], cursor: str | None, *, has_text: bool) -> list[Compared]:
    """All comparisons; where the text means nothing, whether it agrees means nothing either."""
    found = [one for each in series for one in compare_all(each, cursor)]
    return found if has_text else [replace(one, agreement=None) for one in found]


def series_of(
    order: Order, subject: Subject, contenders: Contenders, batch_size: int
) -> tuple[Series, dict[str, str]]:
    """The peers and questions of one batch size, and versions of peers from elsewhere."""
    questions = plan.questions(subject.prompts, batch_size, order.num_prompts, order.seed)
    longest = max(len(prompt) for question in questions for prompt in question.prompts)
    asks = contenders.of(batch_size, longest)
    if batch_size > 1 and order.cache_blocks and order.cursor is not None:
        asks |= contenders.other_caches(order.ways[order.cursor], order.cache_blocks)
    if order.official is not None and order.cursor is not None:
        block = max(order.cache_blocks, default=32)
        way = order.ways[order.cursor]
        asks[plan.OFFICIAL] = contenders.official(order.official, way, block)
    versions = {}
    if order.llama_cpp is not None and batch_size == 1:
        asks[plan.LLAMA_CPP], child = contenders.llama(
            order.llama_cpp, max(longest, order.num_first)
        )
        versions = {"llama_cpp_python": child.version, "llama.cpp": child.system}
    first = first_question(questions, order.num_first) if batch_size == 1 else None
    series = Series(
        batch_size, asks, tuple(questions), order.num_slow, first, has_memory=order.has_memory
    )
    return series, versions


def first_question(questions: Sequence[Question], num_tokens: int) -> Question | None:
    """A prompt of exactly so many tokens: the beginning of all the questions' prompts in a row."""
    if num_tokens == 0:
        return None
    tokens = [token for question in questions for token in question.prompts[0]]
    return Question("first token", (tuple(tokens[:num_tokens]),))


def _never() -> Any:
    raise AssertionError("nobody asks this peer")
