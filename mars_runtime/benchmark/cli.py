"""``python -m mars_runtime benchmark``: tokens a second of this runtime beside its peers.

One run on one machine: the same weights, dtype and prompts for every peer, pairs in alternating
order, medians of paired ratios with bootstrap intervals, natural text beside the families. Every
peer is measured at the thread count that suits it best. With the default arguments a run takes some
minutes on two cores and asks: is AR here faster than transformers, are MARS and lossless MARS
faster than AR, on which texts, and which cache serves a batch best?
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mars_runtime.benchmark import plan
from mars_runtime.benchmark.document import Findings
from mars_runtime.evaluation.prompts import PromptError, all_families
from mars_runtime.evaluation.sentences import run_or_say
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.benchmark.run import Order

MAX_BATCH = 256


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``benchmark`` command."""
    parser = subparsers.add_parser("benchmark", help="tokens a second beside transformers")
    add = parser.add_argument
    add("--checkpoint", default="mars-tiny", help="a name or a folder (%(default)s)")
    add("--shape", default=None, help="random weights of a published shape instead: timing only")
    add("--acceptance", default=None, help="for --shape: shares of forwards that take 1,2,3... "
        "tokens, or the JSON of a benchmark")  # fmt: skip
    add("--families", nargs="+", default=None, help="default: all of them, and natural text")
    add("--prompts", type=int, default=10, help="held-out prompts a family (%(default)s)")
    add("--rounds", type=int, default=3, help="times each pair is played (%(default)s)")
    add("--batch", nargs="+", type=int, default=[1, 8], help="batch sizes (1 8)")
    add("--taus", nargs="+", type=float, default=[0.95])
    add("--block-sizes", nargs="+", type=int, default=[4])
    add("--lossless-taus", nargs="*", type=float, default=[0.0])
    add("--lossless-block-sizes", nargs="*", type=int, default=[8])
    add("--grid", action="store_true", help="MARS at τ 0.95, 0.8, 0.5 and B 2, 4, 8")
    add("--cache-blocks", nargs="*", type=int, default=[4, 8, 16, 32], help="in batches")
    add("--official", type=Path, default=None, help="a copy of the repository Xalp/MARS")
    add("--max-new-tokens", type=int, default=96)
    add("--threads", nargs="+", type=int, default=[1, 2], help="each peer takes its best (1 2)")
    add("--seed", type=int, default=0, help="which prompts are drawn")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=Path, default=Path("runs/benchmark.json"))
    add("--html", type=Path, default=None, help="the report (default: beside --out)")
    add("--markdown", action="store_true", help="print tables for a model card")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write ``--out`` and the report. Returns the exit code."""
    console = Console()
    return run_or_say(lambda: _run(args, console), console)


def _run(args: argparse.Namespace, console: Console) -> int:
    load = os.getloadavg()[0]
    order = order_of(args, load)
    from mars_runtime.benchmark.run import perform

    findings = perform(order, console)
    from mars_runtime.benchmark.html import page

    report = args.html or args.out.with_suffix(".html")
    for path, text in (
        (args.out, json.dumps(findings.to_json(), ensure_ascii=False, indent=1)),
        (report, page(findings)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    show(findings, console, is_markdown=args.markdown)
    console.print(f"Written to {args.out} and {report}", markup=False)
    return 0


def order_of(args: argparse.Namespace, load: float) -> Order:
    """What was asked, checked. Raises PromptError or SettingsError."""
    from mars_runtime.benchmark.run import Order

    for value, what in (
        (args.rounds, "rounds"),
        (min(args.threads), "threads"),
        (min(args.batch), "prompts a batch"),
        (min(args.cache_blocks, default=1), "tokens a cache block"),
    ):
        if value < 1:
            raise PromptError(f"Ask for at least 1 of {what}.")
    if max(args.batch) > MAX_BATCH:
        raise PromptError(f"Ask for at most {MAX_BATCH} prompts a batch.")
    return Order(
        checkpoint=args.checkpoint,
        shape=args.shape,
        acceptance=args.acceptance,
        families=tuple(args.families or all_families()),
        num_prompts=args.prompts,
        num_rounds=args.rounds,
        batch_sizes=tuple(dict.fromkeys(args.batch)),
        ways=ways_of(args),
        cache_blocks=tuple(dict.fromkeys(args.cache_blocks)),
        official=args.official,
        threads=tuple(dict.fromkeys(args.threads)),
        seed=args.seed,
        device=args.device,
        dtype=args.dtype,
        load_before=load,
        told={key: value for key, value in vars(args).items() if _is_told(key, value)},
    )


def ways_of(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """This runtime's ways by name. Raises SettingsError."""
    taus, block_sizes = args.taus, args.block_sizes
    if args.grid:
        taus = list(dict.fromkeys([*taus, *plan.GRID_TAUS]))
        block_sizes = list(dict.fromkeys([*block_sizes, *plan.GRID_BLOCK_SIZES]))
    return plan.runtime_ways(
        taus, block_sizes, args.lossless_taus, args.lossless_block_sizes, args.max_new_tokens
    )


def show(findings: Findings, console: Console, *, is_markdown: bool) -> None:
    """Print where it ran, what to doubt, the answers and every table."""
    console.print(findings.place, markup=False)
    versions = findings.origin["versions"]
    console.print(", ".join(f"{name} {version}" for name, version in versions.items()))
    for warning in findings.warnings:
        console.print(warning, style="yellow", markup=False)
    tables = [table for one in findings.series for table in findings.series_tables(one)]
    for table in [*tables, *findings.machine_tables()]:
        if is_markdown:
            print(table.to_markdown(), end="\n\n")
        else:
            console.print(table.to_rich(), crop=False)
    for answer in findings.answers:
        console.print(f"• {answer}", markup=False, highlight=False)


def _is_told(key: str, value: object) -> bool:
    """Arguments worth keeping with the figures: plain values, no paths of this machine."""
    hidden = {"out", "html", "official", "markdown", "command"}
    return key not in hidden and not callable(value)
