"""``python -m mars_runtime evaluate``: measure accuracy and tokens per forward pass. After an
interruption, the same command continues the run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mars_runtime.display.terminal import progress_bars
from mars_runtime.files.outputs import OutputError, check_file, only_writer, path_of, write_text
from mars_runtime.lab.commands import arguments_of, at_least_one, run_or_report
from mars_runtime.lab.evaluation import report
from mars_runtime.lab.evaluation.measure import Cell, CellStore
from mars_runtime.lab.evaluation.prompts import PromptSet, load_prompts
from mars_runtime.model.source import resolve
from mars_runtime.review.methods import read_method
from mars_runtime.settings import DecodeSettings
from mars_runtime.system.provenance import provenance
from mars_runtime.tasks import families_for, is_open

if TYPE_CHECKING:
    from mars_runtime.lab.evaluation.run import EvalModel

CHECKPOINTS = ("ar-tiny", "mars-tiny")
TASK_METHODS = ("tau=0.95,B=4", "lossless,B=8")
REQUEST_METHODS = ("tau=0.95,B=4", "lossless,tau=0.3,B=4", "lossless,B=4",
    "lossless,B=4,mask_layout=every", "ar,lookup", "lossless,B=4,mask_layout=every,lookup",
)  # fmt: skip
TASK_TOKENS, REQUEST_TOKENS = 256, 128


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "evaluate", help="measure accuracy and tokens per forward pass of several methods"
    )
    add = parser.add_argument
    checkpoints = f"names or folders ({' '.join(CHECKPOINTS)})"
    add("--checkpoints", nargs="+", default=list(CHECKPOINTS), help=checkpoints)
    families = "families of prompts (default: tasks and natural text; requests for a chat model)"
    add("--families", nargs="+", help=families)
    add("--prompts", type=int, default=50, help="held-out prompts per family (%(default)s)")
    methods = (
        f"methods to measure in addition to AR ({' '.join(TASK_METHODS)}; for requests "
        f"{' '.join(REQUEST_METHODS)})"
    )
    add("--methods", nargs="+", help=methods)
    limit = f"tokens of an answer at most ({TASK_TOKENS}, for requests {REQUEST_TOKENS})"
    add("--max-new-tokens", type=int, help=limit)
    batch = "prompts per batch; affects only memory and time (%(default)s)"
    add("--batch-size", type=int, default=16, help=batch)
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    out = "file to write; remove FILE.cells.jsonl beside it to decode again (%(default)s)"
    add("--out", type=path_of, default=Path("runs/evaluation.json"), help=out)


def run(args: argparse.Namespace) -> int:
    console = Console()
    try:
        return run_or_report(lambda: _run(args, console))
    except KeyboardInterrupt:
        console.print("Stopped. Run the same command again to continue.", style="yellow")
        return 130


def _run(args: argparse.Namespace, console: Console) -> int:
    to_evaluate = {
        name: load_prompts(
            args.families or families_for(resolve(name).is_chat), args.seed, args.prompts
        )
        for name in args.checkpoints
    }
    methods = {name: methods_of(args, name, sets) for name, sets in to_evaluate.items()}
    at_least_one(args, "batch_size")
    check_file(args.out)
    _check_replaceable(args.out)
    stored = args.out.with_name(args.out.stem + ".cells.jsonl")
    check_file(stored)
    stored.touch()
    with only_writer(stored):
        store = CellStore(stored)
        results: dict[Cell, Sequence[report.Outcome]] = {}
        for name, prompt_sets in to_evaluate.items():
            results |= _evaluated(name, methods[name], prompt_sets, store, args, console)
        made = {"kind": "evaluation", "version": 3, **provenance(), "asked": arguments_of(args)}
        content = made | report.to_json(results)
        write_text(args.out, json.dumps(content, ensure_ascii=False, indent=1))
        report.table(results).print(console)
        console.print(f"Written to {args.out}", markup=False)
    return 0


def _evaluated(
    name: str,
    methods: Sequence[DecodeSettings],
    prompt_sets: Sequence[PromptSet],
    store: CellStore,
    args: argparse.Namespace,
    console: Console,
) -> dict[Cell, Sequence[report.Outcome]]:
    from mars_runtime.lab.evaluation.run import evaluate

    model = _load(name, args)
    supported = [settings for settings in methods if model.supports(settings)]
    if len(supported) < len(methods):
        console.print(f"{name} was trained for B up to {model.largest}. Other methods are skipped.")
    total = len(supported) * sum(len(prompt_set.tasks) for prompt_set in prompt_sets)
    results: dict[Cell, Sequence[report.Outcome]] = {}
    with progress_bars(console) as progress:
        bar = progress.add_task(model.name, total=total)
        evaluated = evaluate(
            *(model, supported, prompt_sets, store, args.batch_size),
            on_rows=partial(progress.advance, bar),
        )
        for cell, outcomes in evaluated:
            results[cell] = outcomes
            progress.update(bar, description=f"{cell.method} · {cell.family}")
    return results


def methods_of(
    args: argparse.Namespace, name: str, prompt_sets: Sequence[PromptSet]
) -> list[DecodeSettings]:
    are_open = all(is_open(prompt_set.family) for prompt_set in prompt_sets)
    limit = args.max_new_tokens or (REQUEST_TOKENS if are_open else TASK_TOKENS)
    texts = args.methods or (REQUEST_METHODS if are_open else TASK_METHODS)
    methods = [read_method(text, name, max_new_tokens=limit) for text in ("ar", *texts)]
    return list(dict.fromkeys(method.settings for method in methods if method.settings))


def _check_replaceable(path: Path) -> None:
    """Raise OutputError if ``path`` exists and was not written by an evaluation."""
    if not path.exists():
        return
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        is_evaluation = isinstance(content, dict) and content.get("kind") == "evaluation"
    except (OSError, ValueError, RecursionError):
        is_evaluation = False
    if not is_evaluation:
        raise OutputError(
            f"--out {path} is not an evaluation. Remove this file, or choose another file."
        )


def _load(name: str, args: argparse.Namespace) -> EvalModel:
    from mars_runtime.lab.evaluation.run import eval_model_of
    from mars_runtime.model.load import load_checkpoint

    return eval_model_of(load_checkpoint(name, device=args.device, dtype=args.dtype))
