"""`python -m mars_runtime distill`: the command line of text generation for the adapter."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mars_runtime.outputs import OutputError, check_folder, path_of


def add_parser(subparsers: Any) -> None:
    """Register the subcommand ``distill``."""
    parser = subparsers.add_parser("distill", help="write the base's answers to train on")
    add = parser.add_argument
    add("--base", default="mars-smollm2", help="name in the registry, folder or GGUF file")
    add("--data", type=Path, required=True, help="folder with the training texts")
    add("--out", type=path_of, required=True, help="of the answers; a run goes on where it was")
    add("--prompts", type=int, default=24_000, help="how many prompts to answer")
    add("--written", type=int, default=0, help="first let the base write so many prompts, once")
    add("--max-tokens", type=int, default=256, help="longest answer")
    add("--rows", type=int, default=192, help="rows decoded at once")
    add("--part", default="1/1", help="K/N: this process takes every N-th prompt, from the K-th")
    add("--threads", type=int, help="CPU threads")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Generate; returns the exit code. A user's mistake is one sentence on standard error."""
    part = parse_part(args.part)
    if part is None:
        print(f"--part is {args.part}: give K/N, such as 1/2.", file=sys.stderr)
        return 2
    if not args.data.is_dir():
        print(f"No folder {args.data}: give --data the folder of training texts.", file=sys.stderr)
        return 2
    if args.threads is not None and args.threads < 1:
        print("Ask for at least 1 of threads.", file=sys.stderr)
        return 2
    try:
        check_folder(args.out)
        return _distill(args, part)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2


def _distill(args: argparse.Namespace, part: tuple[int, int]) -> int:
    import torch

    from mars_runtime.lab.training.distill.run import Distiller
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.load import choose_device

    if args.threads:
        torch.set_num_threads(args.threads)
    try:
        with choose_device(args.device):
            distiller = Distiller(args.base, args.data, args.out, part, args.rows, args.max_tokens)
            distiller.run(args.prompts, args.written)
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def parse_part(text: str) -> tuple[int, int] | None:
    """(K, N) of "K/N" with 1 <= K <= N."""
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit() and 1 <= int(first) <= int(second)):
        return None
    return int(first), int(second)
