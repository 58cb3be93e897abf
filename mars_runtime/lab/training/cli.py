"""``python -m mars_runtime train``: train a checkpoint or an adapter."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_runtime.files.outputs import check_folder, only_writer, path_of
from mars_runtime.lab.commands import UsageError, at_least_one, run_or_report
from mars_runtime.lab.training.recipe import RECIPES

if TYPE_CHECKING:
    from mars_runtime.lab.training.loop import Training

OUTPUTS = ("resume.pt", "config.json", "*.safetensors*")
STAGES = ("ar", "mars", "block_diffusion", "adapter")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("train", help="train a checkpoint or an adapter")
    add = parser.add_argument
    add("--recipe", choices=sorted(RECIPES), default="cpu", help="hyperparameters (%(default)s)")
    add("--stage", choices=STAGES, required=True, help="what to train")
    data = "folder with the training texts; for stage adapter, the output folder of distill"
    add("--data", type=Path, required=True, help=data)
    add("--out", type=path_of, required=True, help="folder for the new checkpoint")
    start = "checkpoint to start from; optional for stage ar, which then trains a baseline of mars"
    add("--from", dest="start", help=start)
    add("--resume", action="store_true", help="continue from the last save in --out")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add = parser.add_argument_group("stage adapter").add_argument
    add("--steps", type=int, default=1000, help="optimizer steps")
    add("--rank", type=int, default=16, help="rank of the updates")
    embeddings = "number of mask embeddings: one, or one per position"
    add("--mask-embeddings", choices=("one", "each"), default="one", help=embeddings)
    adapter = "folder of an adapter to start from, with the same rank, mask embeddings and sampler"
    add("--adapter", type=Path, help=adapter)
    add("--sampler", action="store_true", help="also train a head that re-ranks candidates")
    until = "after this share of the steps, ignore the masks behind the first wrong mask of a group"
    add("--until-miss-from", type=float, default=1.0, help=until)
    add("--batch-tokens", type=int, default=1024, help="tokens per step, padding included")
    add("--anchors", type=int, default=64, help="groups of masks per text and step")
    add("--measure-steps", type=int, default=50, help="steps between held-out measurements")
    add("--measure-texts", type=int, default=8, help="held-out texts to measure per kind")


def run(args: argparse.Namespace) -> int:
    return run_or_report(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    _check(args)
    check_folder(args.out)
    from mars_runtime.model.load import choose_device

    with only_writer(args.out), choose_device(args.device):
        trainer = _adapter_trainer(args) if args.stage == "adapter" else _trainer(args)
        if args.resume:
            try:
                trainer.resume()
            except Exception as error:  # torch raises many types of errors for an invalid file
                raise UsageError(
                    f"The save in {args.out} is damaged or belongs to another recipe. Choose "
                    "another --out and remove --resume."
                ) from error
        if trainer.run():
            print(f"Stopped. Saved to {args.out}. Add --resume to continue.", file=sys.stderr)
            return 130
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError, before torch is imported."""
    at_least_one(args, "steps", "rank", "batch_tokens", "anchors", "measure_texts")
    if not args.data.is_dir():
        raise UsageError(
            f"--data {args.data} is not a folder. Pass the folder with the training texts."
        )
    if args.stage != "ar" and args.start is None:
        raise UsageError(f"--stage {args.stage} needs a checkpoint to start from. Pass --from.")
    # For an adapter, --from can also be a registry name or a GGUF file, which is checked later.
    is_folder = args.stage == "adapter" or (Path(args.start or "") / "config.json").is_file()
    if args.start and not is_folder:
        raise UsageError(
            f"--from {args.start} has no checkpoint. Pass a folder with config.json and weights."
        )
    if not args.resume and any(any(args.out.glob(pattern)) for pattern in OUTPUTS):
        raise UsageError(
            f"--out {args.out} already has a checkpoint. Add --resume to continue its training, or "
            "choose another folder."
        )
    if args.resume and not (args.out / "resume.pt").is_file():
        raise UsageError(f"--out {args.out} has no save to resume from. Remove --resume.")


def _trainer(args: argparse.Namespace) -> Training:
    from mars_runtime.lab.training.tokenizer import put_tokenizer
    from mars_runtime.lab.training.train import Trainer

    start = Path(args.start) if args.start else None
    put_tokenizer(RECIPES[args.recipe], args.data, args.out, start)
    return Trainer(RECIPES[args.recipe], args.stage, args.data, args.out, start)


def _adapter_trainer(args: argparse.Namespace) -> Training:
    import torch

    from mars_runtime.lab.training.adapter.parameters import Form
    from mars_runtime.lab.training.adapter.train import AdapterRecipe, AdapterTrainer

    recipe = AdapterRecipe(
        steps=args.steps,
        form=Form(args.rank, 1 if args.mask_embeddings == "one" else 7, args.sampler),
        until_miss_from=args.until_miss_from,
        batch_tokens=args.batch_tokens,
        anchors=args.anchors,
        measure_steps=args.measure_steps,
        measure_texts=args.measure_texts,
    )
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    is_cuda = torch.get_default_device().type == "cuda"
    dtype = torch.bfloat16 if is_cuda or has_bf16 else torch.float32
    trainer = AdapterTrainer(recipe, args.start, args.data, args.out, dtype)
    if args.adapter and not args.resume:
        trainer.parameters.load(args.adapter)
    return trainer
