"""``python -m mars_runtime scale``: two replicas of one thread each beside one, by Ray Serve.

Both are there all the time and are asked in turn, in alternating order, so that a drift of the
machine hits both alike; the figure is the ratio pair by pair. Clients, proxy and Ray itself run on
the same cores and are part of what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mars_runtime import statistics
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.lab.evaluation.sentences import run_or_say
from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.scaling.load import Load, LoadError, drive
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import provenance
from mars_runtime.serving import replicas
from mars_runtime.serving.plan import ServePlan, bring
from mars_runtime.serving.server import bound
from mars_runtime.statistics import Estimate
from mars_runtime.tasks.requests import request_tasks

NUM_PROMPTS = 48
SIDES = {"one": 1, "two": 2}
ASKED = ("checkpoint", "pairs", "seconds", "clients", "max_runs", "max_tokens")


@dataclass(frozen=True, slots=True)
class Pair:
    """One replica and two, one after the other."""

    one: Load
    two: Load

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
    except (replicas.DeployError, LoadError) as error:
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
        for name, number in SIDES.items():
            replicas.deploy(plan_of(args, number), bring, name)

        def load(name: str, seconds: float) -> Load:
            at = f"http://127.0.0.1:{port}/{name}"
            asked = (args.checkpoint, prompts, args.clients, seconds, args.max_tokens)
            return drive(at, *asked)

        for name in SIDES:  # whatever happens once
            load(name, 1.0)
        return [_pair(number, load, args.seconds) for number in range(args.pairs)]
    finally:
        replicas.end(*SIDES)


def _pair(number: int, load: Any, seconds: float) -> Pair:
    """The one or the other first, by turns."""
    names = list(SIDES) if number % 2 == 0 else list(reversed(SIDES))
    found = {name: load(name, seconds) for name in names}
    pair = Pair(**found)
    print(f"pair {number + 1}: {pair.ratio:.2f}", flush=True)
    return pair


def plan_of(args: argparse.Namespace, num_replicas: int) -> ServePlan:
    """Replicas of one thread that refuse nobody here."""
    return ServePlan(
        args.checkpoint,
        device="cpu",
        max_runs=args.max_runs,
        max_waiting=args.clients,
        min_replicas=num_replicas,
        max_replicas=num_replicas,
    )


def document(args: argparse.Namespace, pairs: Sequence[Pair]) -> dict[str, Any]:
    """All of it as JSON, every pair too."""
    told = {name: getattr(args, name) for name in ASKED}
    return {
        **provenance(args.checkpoint),
        "ray": metadata.version("ray"),
        "asked": told,
        "one": asdict(rate_of([pair.one for pair in pairs])),
        "two": asdict(rate_of([pair.two for pair in pairs])),
        "ratio": asdict(statistics.median([pair.ratio for pair in pairs])),
        "pairs": [asdict(pair) for pair in pairs],
    }


def rate_of(loads: Sequence[Load]) -> Estimate:
    """Tokens per second, the median."""
    return statistics.median([load.tokens_per_second for load in loads])


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
