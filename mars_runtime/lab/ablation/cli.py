"""``python -m mars_runtime ablate``: train variants of MARS and compare them.

Worker processes train the variants in parallel and store the results in a folder. If the command
runs again with this folder, it skips finished trainings.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mars_runtime.lab.ablation.report import table_of, write_results
from mars_runtime.lab.ablation.variants import (
    BUDGET_TOKENS,
    START,
    STARTS,
    VARIANTS,
    AblationPlan,
)
from mars_runtime.lab.commands import UsageError, at_least_one, run_or_report
from mars_runtime.machine import num_cores
from mars_runtime.outputs import check_folder, in_words, only_writer, path_of

SHARD_EXAMPLES = 4096
NAMES = tuple(variant.name for variant in VARIANTS)
Job = partial[Any]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("ablate", help="train variants of MARS and compare them")
    parser.add_argument("--data", type=Path, required=True, help="folder with the training texts")
    parser.add_argument("--out", type=path_of, required=True, help="folder for the results")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    parser.add_argument("--workers", type=int, default=1, help="number of parallel trainings")
    parser.add_argument("--start", choices=STARTS, default=START, help="checkpoint to start from")
    parser.add_argument(
        "--budget-tokens", type=int, default=BUDGET_TOKENS, help="number of tokens per training"
    )
    parser.add_argument(
        "--budget-seconds",
        type=float,
        default=math.inf,
        help="time limit of each training, in seconds",
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings per variant")
    parser.add_argument(
        "--prompts", type=int, default=50, help="number of held-out prompts per family"
    )
    parser.add_argument(
        "--shards", type=int, default=64, help="number of shards of training examples"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="variants to train")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="time limit of the command, in minutes; unfinished trainings are then stopped",
    )


def run(args: argparse.Namespace) -> int:
    until = time.monotonic() + 60 * args.minutes
    return run_or_report(lambda: _run(args, until))


def _run(args: argparse.Namespace, until: float) -> int:
    _check(args)
    check_folder(args.out)
    with only_writer(args.out):
        return _work(args, until)


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for invalid arguments."""
    if not args.data.is_dir():
        raise UsageError(
            f"--data {args.data} is not a folder. Pass the folder with the training texts."
        )
    at_least_one(args, "workers", "budget_tokens", "seeds", "prompts", "shards")
    for name in ("minutes", "budget_seconds"):
        if not (value := getattr(args, name)) > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {value:g}.")
    unknown = [name for name in args.only or () if name not in NAMES]
    if unknown:
        raise UsageError(f"--only {unknown[0]!r} is unknown. Choose among {', '.join(NAMES)}.")


def _work(args: argparse.Namespace, until: float) -> int:
    from mars_runtime.lab.ablation.jobs import write_shard

    plan = AblationPlan(
        data=args.data,
        out=args.out,
        start=args.start,
        tokens=args.budget_tokens,
        seconds=args.budget_seconds,
        num_prompts=args.prompts,
        num_shards=args.shards,
        shard_examples=SHARD_EXAMPLES,
        until=until,
    )
    plan.shards.mkdir(exist_ok=True)
    with _pool(args) as pool:
        writing = [Job(write_shard, plan, shard) for shard in range(args.shards)]
        has_succeeded = _finish(pool, writing) and _finish(pool, list(_jobs(args, plan)))
    results = write_results(plan)
    if results.runs:
        Console().print(table_of(results).to_rich(), crop=False)
    return 0 if has_succeeded else 1


@contextmanager
def _pool(args: argparse.Namespace) -> Iterator[ProcessPoolExecutor | None]:
    """Start the worker processes and yield their pool.

    With a single worker, yields None instead: this process then does the work itself.
    """
    from mars_runtime.lab.ablation.jobs import start_worker

    settings = (max(1, num_cores() // args.workers), args.device)
    if args.workers == 1:
        start_worker(*settings)
        yield None
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, context, start_worker, settings) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _jobs(args: argparse.Namespace, plan: AblationPlan) -> Iterator[Job]:
    """Yield a job for each training that has no result yet, ordered by seed, then by variant."""
    from mars_runtime.lab.ablation.jobs import train_variant

    for seed in range(args.seeds):
        for variant in VARIANTS:
            is_chosen = variant.name in (args.only or NAMES) and (variant.is_trained or seed == 0)
            if is_chosen and not plan.result(variant.name, seed).exists():
                yield Job(train_variant, plan, variant, seed)


def _finish(pool: ProcessPoolExecutor | None, jobs: list[Job]) -> bool:
    """Run all jobs and print their log lines; return whether all succeeded."""
    has_succeeded = True
    for result in _done(pool, jobs):
        try:
            line = result()
        except BrokenProcessPool:
            message = "A worker process was killed. Run the command again to continue."
            print(message, file=sys.stderr)
            return False
        except Exception as error:  # a failed training must not stop the others
            reason = in_words(error) if isinstance(error, OSError) else repr(error)
            print(f"A training failed: {reason}", file=sys.stderr, flush=True)
            has_succeeded = False
        else:
            if line:
                print(line, flush=True)
    return has_succeeded


def _done(pool: ProcessPoolExecutor | None, jobs: list[Job]) -> Iterator[Job]:
    """Yield one callable per job, which returns the job's result, in the order the jobs end.

    Without a pool, each callable runs its job when it is called.
    """
    if pool is None:
        yield from jobs
    else:
        for future in as_completed([pool.submit(job) for job in jobs]):
            yield Job(future.result)
