"""``python -m mars_runtime verify lossless``: check that lossless decoding emits AR's tokens."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console

from mars_runtime.decoders.methods import AUTO
from mars_runtime.display.terminal import progress_bars
from mars_runtime.files.outputs import check_file, path_of, write_text
from mars_runtime.lab.commands import at_least_one, run_or_report
from mars_runtime.lab.evaluation.measure import Decode, decode_in_batches
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.tables import Table
from mars_runtime.model.source import resolve
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.system.provenance import provenance
from mars_runtime.tasks import families_for

BATCH_SIZES = (1, 4)
Begin = Callable[[str], Callable[[int], None]]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("verify", help="check that lossless decoding emits AR's tokens")
    add = parser.add_argument
    add("promise", choices=("lossless",), help="what to check")
    add("--checkpoint", default="mars-tiny", help="name or folder (%(default)s)")
    families = "families of prompts (default: requests for a chat model, tasks for others)"
    add("--families", nargs="+", help=families)
    add("--prompts", type=int, default=62, help="prompts per family (%(default)s)")
    add("--max-new-tokens", type=int, default=24, help="tokens per answer at most (%(default)s)")
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/lossless.json"))


def run(args: argparse.Namespace) -> int:
    return run_or_report(partial(_run, args, Console()))


def _run(args: argparse.Namespace, console: Console) -> int:
    families = args.families or families_for(resolve(args.checkpoint).is_chat)
    sets = load_prompts(families, args.seed, args.prompts)
    at_least_one(args, "max_new_tokens")
    check_file(args.out)
    import torch

    from mars_runtime.lab.evaluation.run import eval_model_of
    from mars_runtime.model.load import load_checkpoint

    checkpoint = load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)
    model = eval_model_of(checkpoint)
    ids = [model.encode_prompt(task.prompt) for prompts in sets for task in prompts.tasks]
    with progress_bars(console) as progress:

        def begin(label: str) -> Callable[[int], None]:
            return partial(progress.advance, progress.add_task(label, total=len(ids)))

        comparisons = compare_all(model.decode, ids, args.max_new_tokens, begin)
    wrong = sum(len(comparison.mismatches) for comparison in comparisons)
    answers = len(ids) * len(comparisons)
    tokens = sum(comparison.num_tokens for comparison in comparisons)
    document: dict[str, Any] = {
        "kind": "lossless",
        "version": 1,
        **provenance(),
        "checkpoint": checkpoint.name,
        "fingerprint": model.fingerprint,
        "arithmetic": model.dtype,
        "threads": torch.get_num_threads(),
        "num_prompts": len(ids),
        "max_new_tokens": args.max_new_tokens,
        "num_answers": answers,
        "num_tokens": tokens,
        "num_mismatches": wrong,
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }
    write_text(args.out, json.dumps(document, ensure_ascii=False, indent=1))
    _table(comparisons).print(console)
    sentence = (
        f"{wrong} of {answers} answers ({tokens} tokens) to {len(ids)} prompts differ from AR's, "
        f"in {model.dtype}."
    )
    console.print(sentence, style="red" if wrong else "green", markup=False)
    console.print(f"Written to {args.out}", markup=False)
    return 1 if wrong else 0


def lossless_methods(max_new_tokens: int) -> list[DecodeSettings]:
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
    """expected, found: None if an answer has already ended."""

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
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    begin: Begin = lambda label: lambda count: None,
) -> list[MethodComparison]:
    ar = DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens)
    expected = decode_in_batches(decode, prompts, ar, 1, begin("AR"))
    comparisons = []
    for settings, batch_size in product([ar, *lossless_methods(max_new_tokens)], BATCH_SIZES):
        if settings is ar and batch_size == 1:
            continue
        bar = begin(f"{describe(settings)}, batches of {batch_size}")
        outputs = decode_in_batches(decode, prompts, settings, batch_size, bar)
        differences = (
            first_difference(number, one.tokens, other.tokens)
            for number, (one, other) in enumerate(zip(expected, outputs, strict=True))
        )
        comparison = MethodComparison(
            settings=settings,
            batch_size=batch_size,
            num_prompts=len(prompts),
            num_tokens=sum(len(output.tokens) for output in outputs),
            num_forwards=sum(len(output.taken) for output in outputs),
            mismatches=tuple(filter(None, differences)),
        )
        comparisons.append(comparison)
    return comparisons


def first_difference(number: int, expected: Sequence[int], found: Sequence[int]) -> Mismatch | None:
    for place, (token, other) in enumerate(zip_longest(expected, found)):
        if token != other:
            return Mismatch(number, place, token, other)
    return None


def _table(comparisons: Sequence[MethodComparison]) -> Table:
    columns = ("method", "batch", "prompts", "tokens", "tokens per pass", "mismatches")
    lines = tuple(
        (
            describe(row.settings),
            str(row.batch_size),
            str(row.num_prompts),
            str(row.num_tokens),
            f"{row.num_tokens / row.num_forwards:.2f}",
            str(len(row.mismatches)),
        )
        for row in comparisons
    )
    return Table("Comparison with AR, token by token", columns, lines)
