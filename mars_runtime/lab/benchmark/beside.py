"""Tokens per second beside other busy processes: the number of threads chosen as decoding does,
and each fixed number, AR and lossless, with llama.cpp on the same file where it is given.

A busy process is an endless loop; so many run during all of a round, and each peer answers every
question in turn, as in ``paired.play``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from rich.console import Console
from rich.progress import track

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.paired import Peer, Sample, num_answers, play, ratio
from mars_runtime.lab.benchmark.peers import Peers, runtime_ask
from mars_runtime.lab.benchmark.plan import BenchmarkPlan
from mars_runtime.lab.benchmark.report import versions_line
from mars_runtime.lab.benchmark.run import SETTLING_SECONDS
from mars_runtime.lab.benchmark.targets import load_target
from mars_runtime.lab.tables import Table, number
from mars_runtime.model.threads import Threads, TorchThreads, shared_from
from mars_runtime.provenance import provenance
from mars_runtime.settings import AUTO, DecodeSettings
from mars_runtime.statistics import Estimate

CHOSEN = "chosen"
BUSY = "while True: pass"
SETTLE = 0.5  # seconds that busy processes run before the first answer


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one way with one number of threads (None: chosen) beside so many busy processes.

    tokens_per_second: over all answers, prefill apart. over_fixed: where threads were chosen, times
    the tokens per second of the better fixed number, by pairs.
    """

    way: str
    threads: int | None
    beside: int
    tokens_per_second: float
    over_fixed: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """A finished run; ``origin``, ``subject`` and ``asked`` as in ``report.Findings``, and nothing
    to doubt or to say beside the table."""

    warnings: ClassVar[Sequence[str]] = ()
    answers: ClassVar[Sequence[str]] = ()
    origin: Mapping[str, Any]
    subject: Mapping[str, Any]
    asked: Mapping[str, Any]
    rates: Sequence[Rate]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> list[Table]:
        """A line for each way and number of threads: tokens per second in each company, and over
        the same in the first."""
        asked = sorted({one.beside for one in self.rates})
        rates = {(one.way, one.threads, one.beside): one for one in self.rates}
        lines = []
        for way, threads in dict.fromkeys((one.way, one.threads) for one in self.rates):
            own = [rates[way, threads, beside] for beside in asked]
            cells = [cell for one in own for cell in _cells(one, own[0])]
            lines.append((way, CHOSEN if threads is None else str(threads), *cells))
        columns = ("tokens/s beside {}", "over {first}", "over better fixed")
        told = [one.format(beside, first=asked[0]) for beside in asked for one in columns]
        title = "Tokens per second, prefill apart, beside busy processes"
        return [Table(title, ("way", "threads", *told), tuple(lines))]

    @property
    def origin_lines(self) -> tuple[str]:
        """What was decoded, and where, in a line."""
        hardware, subject = self.origin["hardware"], self.subject
        machine = f"{hardware['processor']}, {hardware['cores']} cores"
        return (f"{subject['name']}, {subject['dtype']}; {machine}; {versions_line(self.origin)}",)

    def to_markdown(self) -> str:
        (line,), (table,) = self.origin_lines, self.tables()
        return f"{line}\n\n{table.to_markdown()}\n"


def perform_beside(wanted: BenchmarkPlan, beside: Sequence[int], console: Console) -> Beside:
    """Measure AR and, as the page opens, lossless with chosen threads and with each fixed number,
    llama.cpp with each fixed number, in each company. Raises the errors that ``run_or_say``
    knows."""
    target = load_target(wanted)
    model, fixed = target.model, sorted(set(wanted.threads))
    questions = plan.questions(target.prompts, 1, wanted.num_prompts, wanted.seed)
    longest = max(len(prompt) for question in questions for prompt in question.prompts)
    limit = wanted.max_new_tokens
    lossless = DecodeSettings(tau=0.0, block_size=AUTO, groups="every", lossless=True)
    ways = {
        plan.AR: DecodeSettings("ar", 1.0, 1, max_new_tokens=limit),
        "lossless, as the page opens": replace(lossless, lookup=True, max_new_tokens=limit),
    }
    prepare = partial(use_threads, model, fixed[-1], chosen_threads(model, fixed[-1]))
    origin, rates = provenance(), []
    with Peers(target, ways) as made:
        peers = [
            Peer(
                name_of(way, threads), threads, runtime_ask(target.decode, settings, target.device)
            )
            for way, settings in ways.items()
            for threads in (0, *fixed)
        ]
        if wanted.llama_cpp is not None:
            ask, versions = made.llama(wanted.llama_cpp, longest)
            peers += [Peer(name_of(plan.LLAMA_CPP, count), count, ask) for count in fixed]
            origin["versions"] |= versions
        for peer in peers:  # costs are measured, and what is compiled is compiled
            prepare(peer)
            peer.answer(questions[0])
        for count in beside:
            total = num_answers(peers, len(questions), wanted.num_rounds)
            with busy(count):
                played = play(peers, questions, wanted.num_rounds, prepare)
                what = f"beside {count}"
                watched = track(played, what, total, console=console, auto_refresh=False)
                rates += rates_of(list(watched), count)
    return Beside(origin, target.facts, wanted.told, rates)


def name_of(way: str, threads: int) -> str:
    """What a peer is called. threads: 0 where they are chosen."""
    return f"{way} · {threads or CHOSEN}"


def rates_of(samples: Sequence[Sample], beside: int) -> list[Rate]:
    """A rate for each peer."""
    families = list(dict.fromkeys(one.family for one in samples))
    speeds = {
        (one.peer.partition(" · ")[0], one.threads): _speed(samples, one.peer) for one in samples
    }
    found = []
    for (way, threads), speed in speeds.items():
        fixed = {key: one for key, one in speeds.items() if key[0] == way and key[1]}
        over = None
        if not threads and fixed:
            best = name_of(*max(fixed, key=lambda key: fixed[key]))
            over = ratio(samples, name_of(way, 0), best, families, "decode")
        found.append(Rate(way, threads or None, beside, speed, over))
    return found


def _speed(samples: Sequence[Sample], peer: str) -> float:
    answers = [one.answer for one in samples if one.peer == peer]
    spans = [(one.rate("decode"), one.decode_seconds()) for one in answers]
    known = [(rate, seconds) for rate, seconds in spans if rate and seconds]
    return sum(rate * seconds for rate, seconds in known) / sum(seconds for _, seconds in known)


def _cells(now: Rate, first: Rate) -> tuple[str, str, str]:
    speed = now.tokens_per_second
    return f"{speed:.0f}", f"{speed / first.tokens_per_second:.2f}", number(now.over_fixed)


@contextmanager
def busy(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes that do nothing but run."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        time.sleep(SETTLE if count else 0.0)
        yield started
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()


def chosen_threads(model: Any, most: int) -> TorchThreads | None:
    """As an engine chooses for a model that PyTorch computes; the native one chooses itself."""
    if isinstance(model.threads, Threads):
        return None
    return TorchThreads(1, most, shared_from(model, most))


def use_threads(model: Any, most: int, chosen: TorchThreads | None, peer: Peer) -> None:
    """Switch a model to the threads of a peer, 0: chosen, at most ``most``; and let those of the
    peer before settle."""
    time.sleep(SETTLING_SECONDS)
    if isinstance(model.threads, Threads):
        model.threads.fixed = peer.threads or None
        torch.set_num_threads(peer.threads or most)
    else:
        model.threads = None if peer.threads else chosen
        torch.set_num_threads(peer.threads or 1)
