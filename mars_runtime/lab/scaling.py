"""``python -m mars_runtime scale``: two replicas of one thread each beside one, by Ray Serve.

Both are there all the time and are asked in turn, in alternating order, so that a drift of the
machine hits both alike; the figure is the ratio pair by pair. Clients, proxy and Ray itself run on
the same cores and are part of what is measured. Clients are a closed loop: each asks, reads the
whole answer, and asks again; they know an address and OpenAI's JSON, nothing of who answers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx

from mars_runtime import statistics
from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.lab.tables import Table
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import provenance
from mars_runtime.serving import replicas
from mars_runtime.serving.server import ServePlan, bound, bring
from mars_runtime.tasks.requests import request_tasks

NUM_PROMPTS = 48
SIDES = {"one": 1, "two": 2}
ASKED = ("checkpoint", "pairs", "seconds", "clients", "max_runs", "max_tokens")
RAMP_SECONDS = 3.0  # until all rows are filled; not counted
REST_SECONDS = 0.2  # of a client that was refused
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Span:
    """An answer of ``num_tokens`` between two times in seconds."""

    began: float
    ended: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a closed loop brought. tokens_per_second: of answers, in the window that is counted;
    refused: requests that were answered with 429 or 503."""

    tokens_per_second: float
    num_answers: int
    num_refused: int


class TrafficError(RuntimeError):
    """A loop that cannot go on; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One replica and two, one after the other."""

    one: Traffic
    two: Traffic

    @property
    def ratio(self) -> float:
        """How many times the tokens per second of one."""
        return self.two.tokens_per_second / self.one.tokens_per_second


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``scale`` command."""
    parser = subparsers.add_parser("scale", help="what a second replica brings")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add("--pairs", type=int, default=4, help="of measurements (%(default)s)")
    add("--seconds", type=float, default=20.0, help="of each (%(default)s)")
    add("--clients", type=int, default=16, help="that ask again and again (%(default)s)")
    add("--max-runs", type=int, default=4, help="served at once by a replica (%(default)s)")
    add("--max-tokens", type=int, default=128, help="of an answer (%(default)s)")
    add("--output", type=path_of, default=Path("assets/results/scaling.json"), help="JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, print and write. Returns the exit code."""
    return run_or_say(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    if min(args.pairs, args.clients, args.max_runs, args.max_tokens) < 1 or args.seconds <= 0:
        raise PromptError("Ask for at least 1 pair, client, run and token, and for some seconds.")
    if not replicas.is_there():
        raise PromptError(replicas.NO_RAY)
    check_file(args.output)
    try:
        pairs = _measured(args)
    except (replicas.DeployError, TrafficError) as error:
        print(error, file=sys.stderr)
        return 1
    found = document(args, pairs)
    write_text(args.output, json.dumps(found, indent=1) + "\n")
    _print(found, pairs)
    return 0


def _measured(args: argparse.Namespace) -> list[Pair]:
    prompts = [task.prompt for task in request_tasks("chat", 0, NUM_PROMPTS)]
    with bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    replicas.begin("127.0.0.1", port, num_cores=sum(SIDES.values()))
    try:
        for name, number in SIDES.items():  # of one thread each, and they refuse nobody here
            plan = ServePlan(
                args.checkpoint,
                device="cpu",
                max_runs=args.max_runs,
                max_waiting=args.clients,
                min_replicas=number,
                max_replicas=number,
            )
            replicas.deploy(plan, bring, name)

        def measure(name: str, seconds: float) -> Traffic:
            address = f"http://127.0.0.1:{port}/{name}"
            return drive(address, args.checkpoint, prompts, args.clients, seconds, args.max_tokens)

        for name in SIDES:  # whatever happens once
            measure(name, 1.0)
        return [_pair(number, measure, args.seconds) for number in range(args.pairs)]
    finally:
        replicas.end(*SIDES)


def _pair(number: int, measure: Callable[[str, float], Traffic], seconds: float) -> Pair:
    """The one or the other first, by turns."""
    names = list(SIDES) if number % 2 == 0 else list(reversed(SIDES))
    pair = Pair(**{name: measure(name, seconds) for name in names})
    print(f"pair {number + 1}: {pair.ratio:.2f}", flush=True)
    return pair


def document(args: argparse.Namespace, pairs: Sequence[Pair]) -> dict[str, Any]:
    """All of it as JSON, every pair too."""

    def median(name: str) -> dict[str, float]:
        return asdict(statistics.median([getattr(p, name).tokens_per_second for p in pairs]))

    return {
        **provenance(args.checkpoint),
        "ray": metadata.version("ray"),
        "asked": {name: getattr(args, name) for name in ASKED},
        "one": median("one"),
        "two": median("two"),
        "ratio": asdict(statistics.median([pair.ratio for pair in pairs])),
        "pairs": [asdict(pair) for pair in pairs],
    }


def _print(found: dict[str, Any], pairs: Sequence[Pair]) -> None:
    from rich.console import Console

    lines = tuple(
        (
            f"{SIDES[name]} of one thread",
            _between(found[name], ".1f"),
            str(sum(getattr(pair, name).num_answers for pair in pairs)),
            str(sum(getattr(pair, name).num_refused for pair in pairs)),
        )
        for name in SIDES
    )
    hardware, versions = found["hardware"], found["versions"]
    console = Console()
    columns = ("replicas", "tokens per second", "answers", "refused")
    console.print(Table("Throughput of replicas", columns, lines).to_rich(), crop=False)
    console.print(f"Two make {_between(found['ratio'], '.2f')} times the tokens of one.")
    console.print(
        f"{hardware['processor']}, {hardware['cores']} cores; Ray {found['ray']}, "
        f"torch {versions.get('torch')}, Python {versions['python']}; commit {found['commit']}."
    )


def _between(estimate: dict[str, float], form: str) -> str:
    value, low, high = (format(estimate[name], form) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def tokens_within(spans: Sequence[Span], start: float, end: float) -> float:
    """Tokens of a window: an answer that reaches over its edge counts by its share inside."""
    return sum(
        span.num_tokens
        * max(0.0, min(span.ended, end) - max(span.began, start))
        / (span.ended - span.began)
        for span in spans
    )


def drive(
    address: str,
    model: str,
    prompts: Sequence[str],
    num_clients: int,
    seconds: float,
    max_tokens: int,
) -> Traffic:
    """Let clients, who take the prompts in turn, ask for ``seconds`` after a ramp, and what was
    begun end; what came within the window. Raises TrafficError."""
    url, turns = f"{address}/v1/chat/completions", itertools.cycle(prompts)
    spans: list[Span] = []
    num_refused = 0

    async def ask_until(end: float, http: httpx.AsyncClient) -> None:
        nonlocal num_refused
        while (began := time.monotonic()) < end:
            messages = [{"role": "user", "content": next(turns)}]
            asked = {"model": model, "messages": messages, "max_tokens": max_tokens}
            answer = await http.post(url, json=asked)
            if answer.status_code in (429, 503):
                num_refused += 1
                await asyncio.sleep(REST_SECONDS)
                continue
            answer.raise_for_status()
            num_tokens = int(answer.json()["usage"]["completion_tokens"])
            spans.append(Span(began, time.monotonic(), num_tokens))

    async def ask_all() -> Traffic:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            timeout=PATIENCE_SECONDS, limits=limits, trust_env=False
        ) as http:
            # Only now: a client reads certificates first, which on a busy machine takes its while.
            start = time.monotonic() + RAMP_SECONDS
            end = start + seconds
            try:
                await asyncio.gather(*(ask_until(end, http) for _ in range(num_clients)))
            except (httpx.HTTPError, LookupError, ValueError) as error:
                raise TrafficError("An answer failed: see the log of the replicas.") from error
        inside = [span for span in spans if span.ended > start]
        return Traffic(tokens_within(inside, start, end) / seconds, len(inside), num_refused)

    return asyncio.run(ask_all())
