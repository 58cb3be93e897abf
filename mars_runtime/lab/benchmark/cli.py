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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.document import Findings
from mars_runtime.lab.benchmark.usual import REQUESTS, in_words, usual_for
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.lab.evaluation.sentences import run_or_say
from mars_runtime.model.registry import registry
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.lab.benchmark.order import Order

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
        help=in_words("num_prompts", "prompts a family"),
    )
    add("--rounds", type=int, default=None, help=in_words("num_rounds", "times each is played"))
    add("--batch", nargs="+", type=int, default=None, help=in_words("batch_sizes", "batch sizes"))
    add("--taus", nargs="+", type=float, default=None, help="0.95")
    add("--block-sizes", nargs="+", type=int, default=None, help="4")
    add("--lossless-taus", nargs="*", type=float, default=None, help="0")
    add("--lossless-block-sizes", nargs="*", type=int, default=None, help="8")
    add("--grid", action="store_true", help="MARS at τ 0.95, 0.8, 0.5 and B 2, 4, 8")
    add("--drafts", nargs="*", default=[], help="speculative decoding by these draft checkpoints")
    add("--cache-blocks", nargs="*", type=int, default=[4, 8, 16, 32], help="in batches")
    add("--official", type=Path, default=None, help="a copy of the repository Xalp/MARS")
    add("--llama-cpp", default=None, metavar="PYTHON", help="a Python that has llama-cpp-python")
    add("--max-new-tokens", type=int, default=None, help=in_words("max_new_tokens", "at most"))
    add("--threads", nargs="+", type=int, default=None,
        help=in_words("threads", "each peer takes its best"))  # fmt: skip
    add("--beside", nargs="+", type=int, default=None, metavar="N",
        help="instead: AR and lossless beside so many busy processes, with chosen and fixed "
        "numbers of threads")  # fmt: skip
    add("--seed", type=int, default=0, help="which prompts are drawn")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/benchmark.json"))
    add("--html", type=path_of, default=None, help="the tables and figures as one page, if named")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write ``--out`` and what else is asked for. Returns the exit code."""
    console = Console()
    return run_or_say(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    load = os.getloadavg()[0]
    order = order_of(args, load)
    if args.beside is not None:
        return _beside(args, order, console)
    markdown = args.out.with_suffix(".md")
    written = [args.out, markdown, *([args.html] if args.html else [])]
    for path in written:
        check_file(path)
    from mars_runtime.lab.benchmark.run import perform

    findings = perform(order, console)
    write_text(args.out, json.dumps(findings.to_json(), ensure_ascii=False, indent=1))
    write_text(markdown, findings.to_markdown())
    if args.html:
        from mars_runtime.lab.benchmark.html import page

        write_text(args.html, page(findings))
    show(findings, console)
    console.print(f"Written to {', '.join(map(str, written))}", markup=False)
    return 0


def _beside(args: argparse.Namespace, order: Order, console: Console) -> int:
    if min(args.beside) < 0 or max(args.beside) > MOST_BESIDE:
        raise PromptError(f"Ask for 0 to {MOST_BESIDE} busy processes beside.")
    markdown = args.out.with_suffix(".md")
    for path in (args.out, markdown):
        check_file(path)
    from mars_runtime.lab.benchmark.beside import perform_beside

    found = perform_beside(order, args.beside, console)
    write_text(args.out, json.dumps(found.to_json(), ensure_ascii=False, indent=1))
    write_text(markdown, found.to_markdown())
    console.print(found.place, markup=False)
    console.print(found.table().to_rich(), crop=False)
    console.print(f"Written to {args.out} and {markdown}", markup=False)
    return 0


def order_of(args: argparse.Namespace, load: float) -> Order:
    """What was asked, checked. Raises PromptError or SettingsError."""
    from mars_runtime.lab.benchmark.order import Order

    usual = usual_for(args.checkpoint, args.families)
    batch_sizes, threads = args.batch or usual.batch_sizes, args.threads or usual.threads
    num_rounds = usual.num_rounds if args.rounds is None else args.rounds
    for value, what in (
        (num_rounds, "rounds"),
        (min(threads), "threads"),
        (min(batch_sizes), "prompts a batch"),
        (min(args.cache_blocks, default=1), "tokens a cache block"),
    ):
        if value < 1:
            raise PromptError(f"Ask for at least 1 of {what}.")
    if max(batch_sizes) > MAX_BATCH:
        raise PromptError(f"Ask for at most {MAX_BATCH} prompts a batch.")
    return Order(
        checkpoint=args.checkpoint,
        shape=args.shape,
        acceptance=args.acceptance,
        families=tuple(args.families or usual.families),
        num_prompts=usual.num_prompts if args.prompts is None else args.prompts,
        num_rounds=num_rounds,
        batch_sizes=tuple(dict.fromkeys(batch_sizes)),
        ways=ways_of(args),
        cache_blocks=tuple(dict.fromkeys(args.cache_blocks)),
        official=args.official,
        llama_cpp=args.llama_cpp,
        num_slow=usual.num_slow,
        num_first=usual.num_first,
        has_memory=usual.has_memory,
        threads=tuple(dict.fromkeys(threads)),
        seed=args.seed,
        device=args.device,
        dtype=args.dtype,
        load_before=load,
        told={key: value for key, value in vars(args).items() if _is_told(key, value)},
    )


def ways_of(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """This runtime's ways by name: those that are asked for, else the usual ones, and speculative
    ones. Raises SettingsError or PromptError."""
    known = registry()
    if unknown := [name for name in args.drafts if name not in known]:
        raise PromptError(f"There is no checkpoint {unknown[0]!r} to draft: see the registry.")
    ways = own_ways(args)
    limit = next(iter(ways.values())).max_new_tokens
    trained = {name: known[name].block_size > 1 for name in args.drafts}
    return ways | plan.speculative_ways(trained, limit)


def own_ways(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """Those without a draft model. Raises SettingsError."""
    usual = usual_for(args.checkpoint, args.families)
    limit = usual.max_new_tokens if args.max_new_tokens is None else args.max_new_tokens
    given = [args.taus, args.block_sizes, args.lossless_taus, args.lossless_block_sizes]
    if usual is REQUESTS and not args.grid and given == [None] * len(given):
        return plan.request_ways(limit)
    usual_ways: list[list[Any]] = [[0.95], [4], [0.0], [8]]
    filled = [one if had is None else had for had, one in zip(given, usual_ways, strict=True)]
    taus, block_sizes, lossless_taus, lossless_block_sizes = filled
    if args.grid:
        taus = list(dict.fromkeys([*taus, *plan.GRID_TAUS]))
        block_sizes = list(dict.fromkeys([*block_sizes, *plan.GRID_BLOCK_SIZES]))
    return plan.runtime_ways(taus, block_sizes, lossless_taus, lossless_block_sizes, limit)


def show(findings: Findings, console: Console) -> None:
    """Print where it ran, what to doubt, the answers and every table."""
    for line in (findings.place, findings.versions):
        console.print(line, markup=False)
    for warning in findings.warnings:
        console.print(warning, style="yellow", markup=False)
    for table in findings.tables():
        console.print(table.to_rich(), crop=False)
    for answer in findings.answers:
        console.print(f"• {answer}", markup=False, highlight=False)


def _is_told(key: str, value: object) -> bool:
    """Arguments worth keeping with the figures: plain values, no paths of this machine."""
    hidden = {"out", "html", "official", "llama_cpp", "command"}
    return key not in hidden and not callable(value)
