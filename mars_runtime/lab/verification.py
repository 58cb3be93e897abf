"""``python -m mars_runtime verify lossless``: check that lossless decoding emits AR's tokens, for
single prompts and batches. The exit code is 1 if a token differs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console

from mars_runtime.decoders.methods import AUTO
from mars_runtime.display.terminal import progress_bars
from mars_runtime.files.outputs import check_file, path_of, write_text
from mars_runtime.lab.commands import at_least_one, run_or_report
from mars_runtime.lab.evaluation.measure import Decode, RowOutput, decode_in_batches
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.tables import Table
from mars_runtime.model.files import fingerprint
from mars_runtime.model.source import resolve
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.system.provenance import provenance
from mars_runtime.tasks import families_for

BATCH_SIZES = (1, 4)
Begin = Callable[[str, int], Callable[[int], None]]
"""A function (label, total) that starts a progress bar and returns a function to advance it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("verify", help="check that lossless decoding emits AR's tokens")
    add = parser.add_argument
    add("promise", choices=("lossless",), help="what to check")
    add("--checkpoint", default="mars-tiny", help="name or folder (%(default)s)")
    add(
        "--families",
        nargs="+",
        default=None,
        help="families of prompts (default: requests for a chat model, otherwise tasks and natural "
        "text)",
    )
    add("--prompts", type=int, default=62, help="prompts per family (%(default)s)")
    add("--max-new-tokens", type=int, default=24, help="tokens per answer at most (%(default)s)")
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--threads", type=int, default=None, help="CPU threads")
    add("--out", type=path_of, default=Path("runs/lossless.json"))


def run(args: argparse.Namespace) -> int:
    return run_or_report(partial(_run, args, Console()))


def _run(args: argparse.Namespace, console: Console) -> int:
    families = args.families or families_for(resolve(args.checkpoint).is_chat)
    prompts = [
        task.prompt
        for prompt_set in load_prompts(families, args.seed, args.prompts)
        for task in prompt_set.tasks
    ]
    at_least_one(args, "max_new_tokens", "threads")
    check_file(args.out)
    import torch

    from mars_runtime.lab.evaluation.run import eval_model_of
    from mars_runtime.model.load import load_checkpoint

    if args.threads:
        torch.set_num_threads(args.threads)
    checkpoint = load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)
    model = eval_model_of(checkpoint)
    ids = [model.encode_prompt(prompt) for prompt in prompts]
    with progress_bars(console) as progress:

        def begin(label: str, total: int) -> Callable[[int], None]:
            return partial(progress.advance, progress.add_task(label, total=total))

        comparisons = compare_all(model.decode, ids, args.max_new_tokens, begin)
    wrong = sum(len(comparison.mismatches) for comparison in comparisons)
    answers = sum(comparison.num_prompts for comparison in comparisons)
    tokens = sum(comparison.num_tokens for comparison in comparisons)
    document: dict[str, Any] = {
        "kind": "lossless",
        "version": 1,
        **provenance(),
        "checkpoint": checkpoint.name,
        "fingerprint": fingerprint(checkpoint.weight_files),
        "arithmetic": checkpoint.model.arithmetic,
        "threads": torch.get_num_threads(),
        "num_prompts": len(ids),
        "max_new_tokens": args.max_new_tokens,
        "num_answers": answers,
        "num_tokens": tokens,
        "num_mismatches": wrong,
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }
    write_text(args.out, json.dumps(document, ensure_ascii=False, indent=1))
    console.print(_table(comparisons).to_rich(), crop=False)
    sentence = (
        f"{wrong} of {answers} answers ({tokens} tokens) to {len(ids)} prompts differ from AR's, "
        f"in {model.dtype}."
    )
    console.print(sentence, style="red" if wrong else "green", markup=False)
    console.print(f"Written to {args.out}", markup=False)
    return 1 if wrong else 0


def lossless_methods(max_new_tokens: int) -> list[DecodeSettings]:
    """Return settings with low and high τ, few and many masks, both mask layouts, and prompt
    lookup.
    """
    plain = DecodeSettings(lossless=True, max_new_tokens=max_new_tokens)
    every = replace(plain, mask_layout="every")
    return [
        replace(plain, block_size=2, tau=0.5),
        replace(plain, block_size=8, tau=0.0),
        replace(every, block_size=4, tau=0.0),
        replace(every, block_size=6, tau=0.3, lookup=True),
        replace(every, block_size=AUTO, tau=0.0, lookup=True),
    ]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first difference between two answers. place: its position. expected, found: the tokens,
    None if an answer has already ended.
    """

    prompt: int
    place: int
    expected: int | None
    found: int | None


@dataclass(frozen=True, slots=True)
class MethodComparison:
    settings: DecodeSettings
    batch_size: int
    num_prompts: int
    num_tokens: int
    num_forwards: int
    mismatches: tuple[Mismatch, ...]


def compare_all(
    decode: Decode, prompts: Sequence[Sequence[int]], max_new_tokens: int, begin: Begin
) -> list[MethodComparison]:
    ar = DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens)
    expected = decode_in_batches(decode, prompts, ar, 1, begin("AR", len(prompts)))
    comparisons = []
    for settings in [ar, *lossless_methods(max_new_tokens)]:
        for batch_size in BATCH_SIZES:
            if settings is ar and batch_size == 1:
                continue
            bar = begin(f"{describe(settings)}, batches of {batch_size}", len(prompts))
            comparisons.append(
                compare_with_ar(decode, prompts, settings, batch_size, expected, bar)
            )
    return comparisons


def compare_with_ar(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    expected: Sequence[RowOutput],
    on_rows: Callable[[int], None] = lambda count: None,
) -> MethodComparison:
    outputs = decode_in_batches(decode, prompts, settings, batch_size, on_rows)
    differences = (
        first_difference(number, ar.tokens, output.tokens)
        for number, (ar, output) in enumerate(zip(expected, outputs, strict=True))
    )
    return MethodComparison(
        settings=settings,
        batch_size=batch_size,
        num_prompts=len(prompts),
        num_tokens=sum(len(output.tokens) for output in outputs),
        num_forwards=sum(output.num_forwards for output in outputs),
        mismatches=tuple(difference for difference in differences if difference is not None),
    )


def first_difference(number: int, expected: Sequence[int], found: Sequence[int]) -> Mismatch | None:
    for place, (token, other) in enumerate(zip_longest(expected, found)):
        if token != other:
            return Mismatch(number, place, token, other)
    return None


def _table(comparisons: Sequence[MethodComparison]) -> Table:
    columns: dict[str, Callable[[MethodComparison], str]] = {
        "method": lambda row: describe(row.settings),
        "batch": lambda row: str(row.batch_size),
        "prompts": lambda row: str(row.num_prompts),
        "tokens": lambda row: str(row.num_tokens),
        "tokens per pass": lambda row: f"{row.num_tokens / row.num_forwards:.2f}",
        "mismatches": lambda row: str(len(row.mismatches)),
    }
    return Table.of("Comparison with AR, token by token", comparisons, columns)
