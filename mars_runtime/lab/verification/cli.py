"""``python -m mars_runtime verify``: what is promised of a checkpoint, held against evidence.

``lossless``: every lossless way writes AR's very tokens, alone and in batches. ``sampling``: what
lossless draws is AR's draw, and follows AR's probabilities place by place. ``logits``: those of
this runtime beside transformers' for the same weights, in the dtype that is asked for, and greedy
text in fp32. ``published``: a page on a checkpoint that its authors published, for whoever has it.
The exit code is 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError, load_prompts
from mars_runtime.model.registry import is_chat
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import provenance
from mars_runtime.tasks import families_for
from mars_runtime.terminal import progress_bars

PUBLISHED = "published"
PROMISES = ("lossless", "sampling", "logits", PUBLISHED)
USUAL_PROMPTS = {"lossless": 62, "sampling": 1, "logits": 40, PUBLISHED: 10}
USUAL_TOKENS = {"lossless": 24, "sampling": 8, "logits": 24, PUBLISHED: 64}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``verify`` command."""
    parser = subparsers.add_parser("verify", help="hold promises against evidence")
    add = parser.add_argument
    add("promise", choices=PROMISES)
    add("--checkpoint", default="mars-tiny", help="a name or a folder (%(default)s)")
    add("--families", nargs="+", default=None, help="default: requests, or tasks and natural text")
    add(
        "--prompts",
        type=int,
        default=None,
        help="a family (62; 1 sampling, 40 logits, 10 published)",
    )
    add("--max-new-tokens", type=int, default=None, help="24; 8 sampling, 64 published")
    add("--seed", type=int, default=0, help="which prompts are drawn")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--threads", type=int, default=None, help="CPU threads")
    add("--llama-cpp", default=None, metavar="PYTHON",
        help="published: a Python that has llama-cpp-python")  # fmt: skip
    add("--out", type=path_of, default=None, help="default: runs/PROMISE.json, runs/published.md")


def run(args: argparse.Namespace) -> int:
    """Gather the evidence, print it, write ``--out``. Returns the exit code."""
    console = Console()
    return run_or_say(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    is_page = args.promise == PUBLISHED
    if args.llama_cpp and not is_page:
        raise PromptError("--llama-cpp is for verify published: leave it out.")
    families = args.families or families_for(is_page or is_chat(args.checkpoint))
    count = USUAL_PROMPTS[args.promise] if args.prompts is None else args.prompts
    prompts = [
        task.prompt for one in load_prompts(families, args.seed, count) for task in one.tasks
    ]
    if args.max_new_tokens is None:
        args.max_new_tokens = USUAL_TOKENS[args.promise]
    if args.max_new_tokens < 1:
        raise PromptError("Ask for at least 1 new token.")
    if args.threads is not None and args.threads < 1:
        raise PromptError("Ask for at least 1 of threads.")
    out = args.out or Path("runs") / f"{args.promise}.{'md' if is_page else 'json'}"
    check_file(out)
    import torch

    from mars_runtime.lab.verification import evidence, published

    gathering = {
        "lossless": evidence.lossless,
        "sampling": evidence.sampling,
        "logits": evidence.logits,
    }
    if args.threads:
        torch.set_num_threads(args.threads)
    case = evidence.Case(args.checkpoint, args.device, args.dtype, args.max_new_tokens)
    with progress_bars(console) as progress:

        def begin(what: str, total: int) -> Callable[[int], None]:
            return partial(progress.advance, progress.add_task(what, total=total))

        if is_page:
            page = published.report(case, prompts, begin, provenance(), args.llama_cpp)
            write_text(out, page.text)
            console.print(page.text, markup=False, highlight=False)
            console.print(f"Written to {out}", markup=False)
            return 0 if page.is_kept else 1
        found = gathering[args.promise](case, prompts, begin)
    document = {"kind": args.promise, "version": 1, **provenance(), **found.document}
    write_text(out, json.dumps(document, ensure_ascii=False, indent=1))
    console.print(found.table.to_rich(), crop=False)
    console.print(found.sentence, style="green" if found.is_kept else "red", markup=False)
    console.print(f"Written to {out}", markup=False)
    return 0 if found.is_kept else 1
