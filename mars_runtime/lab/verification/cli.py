"""``python -m mars_runtime verify``: check a promise of the runtime for a checkpoint.

- ``lossless``: every lossless method emits the same tokens as AR, for single prompts and batches.
- ``sampling``: lossless decoding with a seed samples the same tokens as AR with this seed, and the
  sampled tokens follow AR's probabilities.
- ``logits``: greedy answers in fp32 have the same tokens as those of transformers. The logits in
  the requested dtype are also compared.

The exit code is 1 if the promise is broken.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from mars_runtime.lab.commands import at_least_one, run_or_report
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.model.registry import is_chat
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import provenance
from mars_runtime.tasks import families_for
from mars_runtime.terminal import progress_bars

DEFAULTS = {"lossless": (62, 24), "sampling": (1, 8), "logits": (40, 24)}
"""Name of a promise -> default (number of prompts per family, maximum number of new tokens)."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("verify", help="check that decoding is exact for a checkpoint")
    add = parser.add_argument
    add("promise", choices=tuple(DEFAULTS), help="what to check")
    add("--checkpoint", default="mars-tiny", help="name or folder (%(default)s)")
    add(
        "--families",
        nargs="+",
        default=None,
        help="families of prompts (default: requests for a chat model, otherwise tasks and natural "
        "text)",
    )
    add("--prompts", type=int, default=None, help="prompts per family (62; sampling 1, logits 40)")
    add(
        "--max-new-tokens",
        type=int,
        default=None,
        help="maximum number of tokens per answer (24; sampling 8)",
    )
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--threads", type=int, default=None, help="CPU threads")
    add("--out", type=path_of, default=None, help="default: runs/PROMISE.json")


def run(args: argparse.Namespace) -> int:
    console = Console()
    return run_or_report(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    num_prompts, max_new_tokens = DEFAULTS[args.promise]
    families = args.families or families_for(is_chat(args.checkpoint))
    count = num_prompts if args.prompts is None else args.prompts
    prompts = [
        task.prompt
        for prompt_set in load_prompts(families, args.seed, count)
        for task in prompt_set.tasks
    ]
    if args.max_new_tokens is None:
        args.max_new_tokens = max_new_tokens
    at_least_one(args, "max_new_tokens", "threads")
    out = args.out or Path("runs") / f"{args.promise}.json"
    check_file(out)
    import torch

    from mars_runtime.lab.verification import evidence

    check = {
        "lossless": evidence.lossless,
        "sampling": evidence.sampling,
        "logits": evidence.logits,
    }[args.promise]
    if args.threads:
        torch.set_num_threads(args.threads)
    case = evidence.Case(args.checkpoint, args.device, args.dtype, args.max_new_tokens)
    with progress_bars(console) as progress:

        def begin(label: str, total: int) -> Callable[[int], None]:
            return partial(progress.advance, progress.add_task(label, total=total))

        result = check(case, prompts, begin)
    document = {"kind": args.promise, "version": 1, **provenance(), **result.document}
    write_text(out, json.dumps(document, ensure_ascii=False, indent=1))
    console.print(result.table.to_rich(), crop=False)
    console.print(result.sentence, style="green" if result.is_kept else "red", markup=False)
    console.print(f"Written to {out}", markup=False)
    return 0 if result.is_kept else 1
