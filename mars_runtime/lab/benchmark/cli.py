"""``python -m mars_runtime benchmark``: compare tokens per second with other programs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from mars_runtime import tasks
from mars_runtime.files.outputs import check_file, path_of, write_text
from mars_runtime.lab.benchmark.peers import ENGINES
from mars_runtime.lab.commands import at_least_one, run_or_report
from mars_runtime.model.source import resolve


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "benchmark", help="compare tokens per second with other programs"
    )
    add = parser.add_argument
    add("--checkpoint", default="mars-tiny", help="name or folder (%(default)s)")
    add("--families", nargs="+", default=None, help="families of prompts: tasks and natural text, "
        "or kinds of open-ended requests (all of those that suit the checkpoint)")  # fmt: skip
    add("--prompts", type=int, default=10, help="prompts per family (%(default)s)")
    add("--rounds", type=int, default=3, help="repeats of each prompt (%(default)s)")
    add("--max-new-tokens", type=int, default=64,
        help="maximum number of tokens per answer (%(default)s)")  # fmt: skip
    add("--threads", nargs="+", type=int, default=[1, 2],
        help="numbers of threads to try; each peer uses its fastest (1 2)")  # fmt: skip
    for engine in ENGINES:
        help = f"also measure {engine.name}: a Python that has {engine.package} (this one)"
        add(engine.option, nargs="?", const=sys.executable, metavar="PYTHON", help=help)
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/benchmark.json"))


def run(args: argparse.Namespace) -> int:
    return run_or_report(lambda: _run(args, Console()))


def _run(args: argparse.Namespace, console: Console) -> int:
    at_least_one(args, "prompts", "rounds", "threads", "max_new_tokens")
    check_file(args.out)
    from mars_runtime.lab.benchmark.run import perform

    usual = tasks.KINDS if resolve(args.checkpoint).is_chat else tasks.all_families()
    findings = perform(args, args.families or usual, console)
    write_text(args.out, json.dumps(findings.to_json(), ensure_ascii=False, indent=1))
    for line in findings.origin_lines:
        console.print(line, markup=False)
    for warning in findings.warnings:
        console.print(warning, style="yellow", markup=False)
    for table in findings.tables():
        table.print(console)
    console.print(f"Written to {args.out}", markup=False)
    return 0
