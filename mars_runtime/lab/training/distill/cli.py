"""``python -m mars_runtime distill``: let the base model write the answers to train on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mars_runtime.files.outputs import check_folder, path_of
from mars_runtime.lab.commands import UsageError, at_least_one, run_or_report


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("distill", help="generate training data for an adapter")
    add = parser.add_argument
    add(
        "--base",
        default="mars-smollm2",
        help="base model: a registry name, a folder or a GGUF file",
    )
    add("--data", type=Path, required=True, help="folder with the training texts")
    add(
        "--out",
        type=path_of,
        required=True,
        help="folder for the answers; prompts already answered there are skipped",
    )
    add("--prompts", type=int, default=24_000, help="number of prompts to answer")
    add("--written", type=int, default=0, help="number of prompts that the base model writes first")
    add("--max-tokens", type=int, default=256, help="maximum number of tokens per answer")
    add("--rows", type=int, default=64, help="number of prompts to decode at once")
    add("--part", default="1/1", help="K/N: answer every N-th prompt, starting at prompt K")
    add("--threads", type=int, help="CPU threads")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")


def run(args: argparse.Namespace) -> int:
    return run_or_report(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    part = parse_part(args.part)
    if not args.data.is_dir():
        raise UsageError(
            f"--data {args.data} is not a folder. Pass the folder with the training texts."
        )
    at_least_one(args, "prompts", "max_tokens", "rows", "threads")
    check_folder(args.out)
    import torch

    from mars_runtime.lab.training.distill.run import Distiller

    if args.threads:
        torch.set_num_threads(args.threads)
    distiller = Distiller(
        args.base, args.data, args.out, part, args.rows, args.max_tokens, args.device
    )
    distiller.run(args.prompts, args.written)
    return 0


def parse_part(text: str) -> tuple[int, int]:
    """Raises UsageError."""
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit() and 1 <= int(first) <= int(second)):
        raise UsageError(f"--part must be K/N, such as 1/2, got {text}.")
    return int(first), int(second)
