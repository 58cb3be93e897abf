"""`python -m mars_runtime train`: the command line of training. What it says before it runs does
not wait for torch.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from mars_runtime.lab.training.recipe import RECIPES
from mars_runtime.outputs import OutputError, check_folder, only_writer, path_of

MADE = ("resume.pt", "config.json", "*.safetensors*")  # what a run leaves in its folder


def add_parser(subparsers: Any) -> None:
    """Register the subcommand ``train``."""
    parser = subparsers.add_parser("train", help="train a bundled checkpoint")
    add = parser.add_argument
    add("--recipe", choices=sorted(RECIPES), default="cpu")
    add("--stage", choices=("ar", "mars", "block_diffusion", "adapter"), required=True)
    add(
        "--data",
        type=Path,
        required=True,
        help="folder with the training texts; of stage adapter, the folder that distill wrote",
    )
    add("--out", type=path_of, required=True, help="folder of the new checkpoint")
    add(
        "--from",
        dest="start",
        help="checkpoint to start from: needed by all stages but ar; with stage ar it makes "
        "the baseline, which gets the tokens of stage mars",
    )
    add("--resume", action="store_true", help="go on from the last save in --out")
    add("--threads", type=int, help="CPU threads")
    # What only stage ``adapter`` reads; the defaults are those of the shipped adapter.
    add = parser.add_argument_group("stage adapter").add_argument
    add("--steps", type=int, default=1000, help="optimizer steps")
    add("--rank", type=int, default=16, help="rank of the updates")
    add("--mask-embeddings", choices=("one", "each"), default="one", help="one, or one per place")
    add("--adapter", type=Path, help="folder of an adapter of the same form to begin with")
    add("--sampler", action="store_true", help="train a head that re-ranks a mask's candidates")
    add(
        "--until-miss-from",
        type=float,
        default=1.0,
        help="from this share of the steps on, leave out masks after a group's first wrong one",
    )
    add("--batch-tokens", type=int, default=1024, help="padded tokens of a step and process")
    add("--anchors", type=int, default=64, help="groups of masks of a text and step")
    add("--measure-steps", type=int, default=50, help="steps between held-out measurements")
    add("--measure-texts", type=int, default=8, help="held-out texts of each kind")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add(
        "--full",
        action="store_true",
        help="instead of an adapter, fine-tune all weights as the paper does, for comparison: "
        "figures only, no checkpoint",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train; returns the exit code. A user's mistake is one sentence on standard error."""
    if problem := _problem(args):
        print(problem, file=sys.stderr)
        return 2
    try:
        check_folder(args.out)
        if args.stage == "adapter":  # of which several processes may write to one folder
            return _train_adapter(args)
        with only_writer(args.out):
            return _train(args)
    except OutputError as error:
        print(error, file=sys.stderr)
        return 2


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


def _train(args: argparse.Namespace) -> int:
    """Train a checkpoint; Ctrl-C saves it."""
    import torch

    from mars_runtime.lab.training.tokenizer import put_tokenizer
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
    if trainer.run():
        print(f"Stopped and saved in {args.out}: --resume goes on.", file=sys.stderr)
        return 130
    return 0


def _train_adapter(args: argparse.Namespace) -> int:
    """Train an adapter. Under ``torchrun`` all processes share the run."""
    import torch
    import torch.distributed as dist

    from mars_runtime.lab.training.adapter.parameters import Form
    from mars_runtime.lab.training.adapter.train import AdapterRecipe, AdapterTrainer
    from mars_runtime.lab.training.backbone import fast_dtype, pays_compiling
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.load import choose_device

    if args.threads:
        torch.set_num_threads(args.threads)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    recipe = AdapterRecipe(
        steps=args.steps,
        form=Form(args.rank, 1 if args.mask_embeddings == "one" else 7, args.sampler, args.full),
        until_miss_from=args.until_miss_from,
        batch_tokens=args.batch_tokens,
        anchors=args.anchors,
        measure_steps=args.measure_steps,
        measure_texts=args.measure_texts,
    )
    try:
        with choose_device(args.device):
            trainer = AdapterTrainer(
                recipe, args.start, args.data, args.out, fast_dtype(), is_compiled=pays_compiling()
            )
            if args.resume:
                trainer.resume()
            elif args.adapter:
                trainer.start_from(args.adapter)
            trainer.run()
    except (CheckpointError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0
