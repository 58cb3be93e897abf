"""``python -m mars_runtime benchmark``: tokens per second of this runtime beside its peers.

One run on one machine: the same weights, dtype and prompts for every peer, pairs in alternating
order, medians of paired ratios with bootstrap intervals, natural text beside the families. With
the default arguments a run takes some minutes on two cores and asks: is AR here faster than
transformers, are MARS and lossless MARS faster than AR, on which texts, and which cache serves a
batch best? A chat model answers open requests, one at a time, beside llama.cpp where it is given.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.plan import REQUESTS, TASKS, BenchmarkPlan
from mars_runtime.lab.benchmark.report import Findings
from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.model.registry import registry
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.lab.benchmark.beside import Beside

MAX_BATCH = 256
MOST_BESIDE = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``benchmark`` command."""
    parser = subparsers.add_parser("benchmark", help="tokens per second beside transformers")
    add = parser.add_argument
    add("--checkpoint", default="mars-tiny", help="a name or a folder (%(default)s)")
    add("--shape", default=None, help="random weights of a published shape instead: timing only")
    add("--acceptance", default=None, help="for --shape: shares of forwards that take 1,2,3... "
        "tokens, or the JSON of a benchmark")  # fmt: skip
    add("--families", nargs="+", default=None, help="tasks and natural text, or open requests")
    add(
        "--prompts",
        type=int,
        default=None,
        help=_both("num_prompts", "prompts a family"),
    )
    add("--rounds", type=int, default=None, help=_both("num_rounds", "times each is played"))
    add("--batch", nargs="+", type=int, default=None, help=_both("batch_sizes", "batch sizes"))
    add("--taus", nargs="+", type=float, default=None, help="0.95")
    add("--block-sizes", nargs="+", type=int, default=None, help="4")
    add("--lossless-taus", nargs="*", type=float, default=None, help="0")
    add("--lossless-block-sizes", nargs="*", type=int, default=None, help="8")
    add("--drafts", nargs="*", default=[], help="speculative decoding by these draft checkpoints")
    add("--cache-blocks", nargs="*", type=int, default=[4, 8, 16, 32], help="in batches")
    add("--llama-cpp", default=None, metavar="PYTHON", help="a Python that has llama-cpp-python")
    add("--transformers", nargs="*", choices=plan.SHORT, default=list(plan.SHORT),
        help="its peers to measure (all)")  # fmt: skip
    add("--max-new-tokens", type=int, default=None, help=_both("max_new_tokens", "at most"))
    add("--threads", nargs="+", type=int, default=None,
        help=_both("threads", "each peer takes its best"))  # fmt: skip
    add("--beside", nargs="+", type=int, default=None, metavar="N",
        help="instead: AR and lossless beside so many busy processes, with chosen and fixed "
        "numbers of threads")  # fmt: skip
    add("--seed", type=int, default=0, help="which prompts are drawn")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/benchmark.json"))


def run(args: argparse.Namespace) -> int:
    """Measure, print, write ``--out`` and the same as Markdown. Returns the exit code."""
    console = Console()
    return run_or_say(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    wanted = plan_of(args, os.getloadavg()[0])
    markdown = args.out.with_suffix(".md")
    for path in (args.out, markdown):
        check_file(path)
    found: Beside | Findings
    if args.beside is not None:
        from mars_runtime.lab.benchmark.beside import perform_beside

        found = perform_beside(wanted, args.beside, console)
    else:
        from mars_runtime.lab.benchmark.run import perform

        found = perform(wanted, console)
    write_text(args.out, json.dumps(found.to_json(), ensure_ascii=False, indent=1))
    write_text(markdown, found.to_markdown())
    show(found, console)
    console.print(f"Written to {args.out} and {markdown}", markup=False)
    return 0


def plan_of(args: argparse.Namespace, load: float) -> BenchmarkPlan:
    """What was asked, checked. Raises PromptError or SettingsError."""
    given = {
        "families": args.families and tuple(args.families),
        "num_prompts": args.prompts,
        "num_rounds": args.rounds,
        "batch_sizes": args.batch and tuple(dict.fromkeys(args.batch)),
        "max_new_tokens": args.max_new_tokens,
        "threads": args.threads and tuple(dict.fromkeys(args.threads)),
    }
    extent = asdict(plan.default_for(args.checkpoint, args.families))
    extent |= {name: value for name, value in given.items() if value is not None}
    for value, what in (
        (extent["num_rounds"], "rounds"),
        (min(extent["threads"]), "threads"),
        (min(extent["batch_sizes"]), "prompts a batch"),
        (min(args.cache_blocks, default=1), "tokens a cache block"),
    ):
        if value < 1:
            raise PromptError(f"Ask for at least 1 of {what}.")
    if max(extent["batch_sizes"]) > MAX_BATCH:
        raise PromptError(f"Ask for at most {MAX_BATCH} prompts a batch.")
    ways = ways_of(args)
    if args.shape is not None:
        ways = plan.imposed(ways)
        if args.dtype in plan.WHOLE:
            extent["num_slow"] = 1
    if args.beside is not None and not 0 <= min(args.beside) <= max(args.beside) <= MOST_BESIDE:
        raise PromptError(f"Ask for 0 to {MOST_BESIDE} busy processes beside.")
    return BenchmarkPlan(
        **extent,
        checkpoint=args.checkpoint,
        shape=args.shape,
        acceptance=args.acceptance,
        ways=ways,
        cache_blocks=tuple(dict.fromkeys(args.cache_blocks)),
        llama_cpp=args.llama_cpp,
        seed=args.seed,
        device=args.device,
        dtype=args.dtype,
        load_before=load,
        told={key: value for key, value in vars(args).items() if _is_told(key, value)},
        transformers=tuple(plan.SHORT[name] for name in args.transformers),
    )


def ways_of(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """This runtime's ways by name: those that are asked for, else the default ones, and speculative
    ones. Raises SettingsError or PromptError."""
    known = registry()
    if unknown := [name for name in args.drafts if name not in known]:
        raise PromptError(f"There is no checkpoint {unknown[0]!r} to draft: see the registry.")
    default = plan.default_for(args.checkpoint, args.families)
    limit = default.max_new_tokens if args.max_new_tokens is None else args.max_new_tokens
    given = [args.taus, args.block_sizes, args.lossless_taus, args.lossless_block_sizes]
    if default is REQUESTS and given == [None] * len(given):
        ways = plan.request_ways(limit)
    else:
        defaults: list[list[Any]] = [[0.95], [4], [0.0], [8]]
        filled = [one if had is None else had for had, one in zip(given, defaults, strict=True)]
        taus, sizes, lossless_taus, lossless_sizes = filled
        ways = plan.runtime_ways(taus, sizes, lossless_taus, lossless_sizes, limit)
    trained = {name: known[name].block_size > 1 for name in args.drafts}
    return ways | plan.speculative_ways(trained, limit)


def show(found: Findings | Beside, console: Console) -> None:
    """Print where it ran, what to doubt, the answers and every table."""
    for line in found.origin_lines:
        console.print(line, markup=False)
    for warning in found.warnings:
        console.print(warning, style="yellow", markup=False)
    for table in found.tables():
        console.print(table.to_rich(), crop=False)
    for answer in found.answers:
        console.print(f"• {answer}", markup=False, highlight=False)


def _both(name: str, what: str) -> str:
    """A line of help with both defaults."""
    values = [getattr(default, name) for default in (TASKS, REQUESTS)]
    told = [" ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in values]
    return f"{what} ({told[0]}; {told[1]} of requests)"


def _is_told(key: str, value: object) -> bool:
    """Arguments worth keeping with the figures: plain values, no paths of this machine."""
    hidden = {"out", "llama_cpp", "command"}
    return key not in hidden and not callable(value)
