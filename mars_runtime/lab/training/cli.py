"""`python -m mars_runtime train`: the command line of training."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from mars_runtime.lab.training.adapter.cli import add_adapter_options, run_adapter
from mars_runtime.lab.training.recipe import RECIPES
from mars_runtime.lab.training.tokenizer_files import put_tokenizer
from mars_runtime.outputs import OutputError, check_folder, only_writer, path_of

MADE = ("resume.pt", "config.json", "*.safetensors")  # what a run leaves in its folder


def add_parser(subparsers: Any) -> None:
    """Register the subcommand ``train``."""
    parser = subparsers.add_parser("train", help="train a bundled checkpoint")
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="cpu")
    parser.add_argument(
        "--stage", choices=("ar", "mars", "block_diffusion", "adapter"), required=True
    )
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="folder with the training texts; of stage adapter, the folder that distill wrote",
    )
    parser.add_argument("--out", type=path_of, required=True, help="folder of the new checkpoint")
    parser.add_argument(
        "--from",
        dest="start",
        help="checkpoint to start from: needed by all stages but ar; with stage ar it makes "
        "the baseline, "
        "which gets the tokens of stage mars",
    )
    parser.add_argument("--resume", action="store_true", help="go on from the last save in --out")
    parser.add_argument("--threads", type=int, help="CPU threads")
    add_adapter_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train; returns the exit code. A user's mistake is one sentence on standard error."""
    problem = _problem(args)
    if problem:
        print(problem, file=sys.stderr)
        return 2
    try:
        check_folder(args.out)
        if args.stage == "adapter":  # of which several processes may write to one folder
            return run_adapter(args)
        with only_writer(args.out):
            return _train(args)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2


def _train(args: argparse.Namespace) -> int:
    """Train what is checked. Ctrl-C saves and ends after the step that goes on; a second one ends
    at once."""
    import torch

    from mars_runtime.lab.training.train import Trainer

    if args.threads:
        torch.set_num_threads(args.threads)
    start = Path(args.start) if args.start else None
    put_tokenizer(RECIPES[args.recipe], args.data, args.out, start)
    trainer = Trainer(RECIPES[args.recipe], args.stage, args.data, args.out, start)
    if args.resume:
        try:
            trainer.resume()
        except Exception as error:  # torch raises errors of many kinds for a file that is none
            raise OutputError(
                f"The save in {args.out} is damaged or of another recipe: start anew in another "
                "--out, without --resume."
            ) from error
    usual = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: object) -> None:
        trainer.is_interrupted = True
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, interrupt)
    try:
        trainer.run()
    finally:
        signal.signal(signal.SIGINT, usual)
    if trainer.is_interrupted:
        print(f"Stopped and saved in {args.out}: --resume goes on.", file=sys.stderr)
        return 130
    return 0


def _problem(args: argparse.Namespace) -> str | None:
    if not args.data.is_dir():
        return f"No folder {args.data}: give --data the folder that holds the training texts."
    if args.stage != "ar" and args.start is None:
        return f"Stage {args.stage} starts from an AR checkpoint: name its folder with --from."
    is_named = args.stage == "adapter"  # a base may be a name of the registry or a GGUF file
    if args.start and not is_named and not (Path(args.start) / "config.json").is_file():
        return f"No checkpoint in {args.start}: --from needs a folder with config.json and weights."
    if args.threads is not None and args.threads < 1:
        return "Ask for at least 1 of threads."
    if not args.resume and any(any(args.out.glob(pattern)) for pattern in MADE):
        return f"There is a checkpoint in {args.out}: --resume goes on with it, or name another."
    if args.resume and not (args.out / "resume.pt").is_file():
        return f"Nothing to resume in {args.out}: leave out --resume to start anew."
    return None
