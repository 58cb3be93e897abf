"""The options of `train --stage adapter`, and its run. Knows no tensors until it runs."""

from __future__ import annotations

import argparse
import os
import sys


def add_adapter_options(parser: argparse.ArgumentParser) -> None:
    """Options that only stage ``adapter`` reads; the defaults are those of the shipped adapter."""
    add = parser.add_argument_group("stage adapter").add_argument
    add("--steps", type=int, default=1000, help="optimizer steps")
    add("--rank", type=int, default=16, help="rank of the updates")
    add("--mask-embeddings", choices=("one", "each"), default="one", help="one, or one per place")
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


def run_adapter(args: argparse.Namespace) -> int:
    """Train; returns the exit code. Under ``torchrun`` all processes share the run."""
    import torch
    import torch.distributed as dist

    from mars_runtime.lab.training.adapter.parameters import Form
    from mars_runtime.lab.training.adapter.train import AdapterTrainer, Recipe
    from mars_runtime.lab.training.backbone import fast_dtype, has_compiler
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.load import choose_device

    if args.threads:
        torch.set_num_threads(args.threads)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    recipe = Recipe(
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
                recipe, args.start, args.data, args.out, fast_dtype(), is_compiled=has_compiler()
            )
            if args.resume:
                trainer.resume()
            trainer.run()
    except (CheckpointError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0
