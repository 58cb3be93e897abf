"""``python -m mars_runtime benchmark``: compare tokens per second with other programs.

All peers (methods of this runtime and other programs) decode the same prompts with the same weights
and dtype, in alternating order on one machine. Results are medians of paired ratios with bootstrap
intervals. Natural text is reported separately from the task families.

By default, a checkpoint trained on tasks is compared with transformers, for single prompts and
batches. A chat model answers single open-ended requests and can also be compared with other
engines.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.plan import REQUESTS, TASKS, BenchmarkPlan
from mars_runtime.lab.commands import UsageError, arguments_of, at_least_one, run_or_report
from mars_runtime.model.registry import registry
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.settings import DecodeSettings

MAX_BATCH = 256
MAX_BESIDE = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "benchmark", help="compare tokens per second with other programs"
    )
    add = parser.add_argument
    add("--checkpoint", default="mars-tiny", help="name or folder (%(default)s)")
    add("--shape", default=None,
        help="model shape to time with random weights, instead of a checkpoint")  # fmt: skip
    add("--acceptance", default=None, help="for --shape: shares of forward passes with 1,2,3... "
        "tokens, or the JSON file of a benchmark")  # fmt: skip
    add("--families", nargs="+", default=None, help="families of prompts: tasks and natural text, "
        "or kinds of open-ended requests")  # fmt: skip
    add("--prompts", type=int, default=None, help=_both("num_prompts", "prompts per family"))
    add("--rounds", type=int, default=None, help=_both("num_rounds", "repeats of each prompt"))
    add("--batch", nargs="+", type=int, default=None, help=_both("batch_sizes", "batch sizes"))
    add("--taus", nargs="+", type=float, default=None, help="values of τ for MARS (0.95)")
    add("--block-sizes", nargs="+", type=int, default=None, help="values of B for MARS (4)")
    add("--lossless-taus", nargs="*", type=float, default=None,
        help="values of τ for lossless MARS (0)")  # fmt: skip
    add("--lossless-block-sizes", nargs="*", type=int, default=None,
        help="values of B for lossless MARS (8)")  # fmt: skip
    add("--drafts", nargs="*", default=[], help="draft checkpoints for speculative decoding")
    add("--cache-blocks", nargs="*", type=int, default=[4, 8, 16, 32],
        help="block sizes of the block cache, measured with batches")  # fmt: skip
    for engine in plan.ENGINES:
        add(
            engine.option,
            default=None,
            metavar="PYTHON",
            help=f"path of a Python that has {engine.package}",
        )
    add("--transformers", nargs="*", choices=plan.SHORT, default=list(plan.SHORT),
        help="methods of transformers to measure (all)")  # fmt: skip
    add("--max-new-tokens", type=int, default=None,
        help=_both("max_new_tokens", "maximum number of tokens per answer"))  # fmt: skip
    add("--threads", nargs="+", type=int, default=None,
        help=_both("threads", "numbers of threads to try; each peer uses its fastest"))  # fmt: skip
    add("--beside", type=int, default=0, metavar="N",
        help="measure while N other processes keep a core busy each")  # fmt: skip
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/benchmark.json"))


def run(args: argparse.Namespace) -> int:
    console = Console()
    return run_or_report(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    wanted = plan_of(args, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)
    markdown = args.out.with_suffix(".md")
    for path in (args.out, markdown):
        check_file(path)
    from mars_runtime.lab.benchmark.run import busy_processes, perform

    with busy_processes(args.beside):
        findings = perform(wanted, console)
    write_text(args.out, json.dumps(findings.to_json(), ensure_ascii=False, indent=1))
    write_text(markdown, findings.to_markdown())
    for line in findings.origin_lines:
        console.print(line, markup=False)
    for warning in findings.warnings:
        console.print(warning, style="yellow", markup=False)
    for table in findings.tables():
        console.print(table.to_rich(), crop=False)
    console.print(f"Written to {args.out} and {markdown}", markup=False)
    return 0


def plan_of(args: argparse.Namespace, load: float) -> BenchmarkPlan:
    """Return the plan that the arguments describe. Raises UsageError or SettingsError."""
    at_least_one(args, "prompts", "rounds", "threads", "batch", "max_new_tokens", "cache_blocks")
    requested = {
        "families": args.families and tuple(args.families),
        "num_prompts": args.prompts,
        "num_rounds": args.rounds,
        "batch_sizes": args.batch and tuple(dict.fromkeys(args.batch)),
        "max_new_tokens": args.max_new_tokens,
        "threads": args.threads and tuple(dict.fromkeys(args.threads)),
    }
    extent = asdict(plan.default_for(args.checkpoint, args.families))
    extent |= {name: value for name, value in requested.items() if value is not None}
    if max(extent["batch_sizes"]) > MAX_BATCH:
        raise UsageError(f"--batch must be at most {MAX_BATCH}, got {max(extent['batch_sizes'])}.")
    if not 0 <= args.beside <= MAX_BESIDE:
        raise UsageError(f"--beside must be between 0 and {MAX_BESIDE}, got {args.beside}.")
    methods = methods_of(args)
    if args.shape is not None:
        methods = plan.imposed(methods)
        if args.dtype in plan.QUANTIZED:
            extent["num_slow"] = 1
    return BenchmarkPlan(
        **extent,
        checkpoint=args.checkpoint,
        shape=args.shape,
        acceptance=args.acceptance,
        methods=methods,
        cache_blocks=tuple(dict.fromkeys(args.cache_blocks)),
        engines={
            engine: interpreter
            for engine in plan.ENGINES
            if (interpreter := getattr(args, engine.key))
        },
        seed=args.seed,
        device=args.device,
        dtype=args.dtype,
        load_before=load,
        arguments=arguments_of(args),
        transformers=tuple(plan.SHORT[name] for name in args.transformers),
    )


def methods_of(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """Return the methods of this runtime to measure: name -> settings.

    Settings without an argument have defaults, which differ for tasks and requests. Speculative
    decoding is added for each draft model in ``--drafts``. Raises SettingsError or UsageError.
    """
    known = registry()
    if unknown := [name for name in args.drafts if name not in known]:
        raise UsageError(
            f"--drafts {unknown[0]!r} is unknown. Choose a name in checkpoints/registry.json."
        )
    default = plan.default_for(args.checkpoint, args.families)
    limit = default.max_new_tokens if args.max_new_tokens is None else args.max_new_tokens
    requested = [args.taus, args.block_sizes, args.lossless_taus, args.lossless_block_sizes]
    if default is REQUESTS and requested == [None] * len(requested):
        methods = plan.request_methods(limit)
    else:
        defaults: list[list[Any]] = [[0.95], [4], [0.0], [8]]
        pairs = zip(requested, defaults, strict=True)
        values = [default if value is None else value for value, default in pairs]
        taus, sizes, lossless_taus, lossless_sizes = values
        methods = plan.task_methods(taus, sizes, lossless_taus, lossless_sizes, limit)
    trained = {name: known[name].block_size > 1 for name in args.drafts}
    return methods | plan.speculative_methods(trained, limit)


def _both(name: str, text: str) -> str:
    """Append the defaults of an option, for tasks and for requests, to its help text."""
    values = [getattr(default, name) for default in (TASKS, REQUESTS)]
    shown = [" ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in values]
    return f"{text} ({shown[0]} for tasks, {shown[1]} for requests)"
