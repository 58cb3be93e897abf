"""``python -m mars_runtime evaluate``: measure accuracy and tokens per forward pass.

Every combination of the settings on the command line is measured, for example ``--taus 0.5 0.8 0.95
--block-sizes 2 4 8``. After an interruption, the same command continues the run. Chat models answer
open-ended requests, which have no checker, so they get no accuracy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mars_runtime.decoders.methods import AUTO, METHODS
from mars_runtime.display.terminal import progress_bars
from mars_runtime.files.outputs import OutputError, check_file, only_writer, path_of, write_text
from mars_runtime.lab.commands import arguments_of, at_least_one, run_or_report
from mars_runtime.lab.evaluation import report
from mars_runtime.lab.evaluation.grid import Grid, GridCell
from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.prompts import PromptSet, load_prompts
from mars_runtime.lab.evaluation.store import CellStore
from mars_runtime.model.source import resolve
from mars_runtime.settings import MASK_LAYOUTS, BlockSize
from mars_runtime.system.provenance import provenance
from mars_runtime.tasks import families_for

if TYPE_CHECKING:
    from mars_runtime.lab.evaluation.run import EvalModel

DEFAULT_CHECKPOINTS = ("ar-tiny", "mars-tiny")

REQUESTS_GRID = Grid(
    lossless_block_sizes=(4,), mask_layouts=("last", "every"), has_lookup=True, max_new_tokens=128
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "evaluate", help="measure accuracy and tokens per forward pass over τ and B"
    )
    add = parser.add_argument
    several = partial(add, nargs="*", default=None)
    checkpoints = f"names or folders ({' '.join(DEFAULT_CHECKPOINTS)})"
    add("--checkpoints", nargs="+", default=list(DEFAULT_CHECKPOINTS), help=checkpoints)
    families = "families of prompts (default: tasks and natural text; requests for a chat model)"
    several("--families", nargs="+", help=families)
    add("--prompts", type=int, default=50, help="held-out prompts per family")
    several("--taus", type=float, help="values of τ for MARS (0.95)")
    several("--block-sizes", type=block_size, help="values of B for MARS (4)")
    several("--lossless-taus", type=float, help="values of τ for lossless MARS (0)")
    sizes = "values of B for lossless MARS (8 for tasks, 4 for requests)"
    several("--lossless-block-sizes", type=block_size, help=sizes)
    layouts = "mask layouts of lossless MARS (last for tasks, both for requests)"
    several("--mask-layouts", nargs="+", choices=MASK_LAYOUTS, help=layouts)
    has_lookup = "also measure prompt lookup (only for requests)"
    lookup = argparse.BooleanOptionalAction
    add("--lookup", dest="has_lookup", action=lookup, default=None, help=has_lookup)
    several(
        "--methods", nargs="+", choices=METHODS, help="methods to measure in addition to AR (mars)"
    )
    several("--drafts", nargs="+", help="draft checkpoints for speculative decoding")
    limit = "maximum number of tokens per answer (256 for tasks, 128 for requests)"
    add("--max-new-tokens", type=int, default=None, help=limit)
    batch = "prompts per batch; affects only memory and time (%(default)s)"
    add("--batch-size", type=int, default=16, help=batch)
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add("--threads", type=int, default=None, help="CPU threads")
    add("--out", type=path_of, default=Path("runs/evaluation.json"))
    add("--restart", action="store_true", help="discard stored measurements and start again")


def block_size(text: str) -> BlockSize:
    return AUTO if text == AUTO else int(text)


def run(args: argparse.Namespace) -> int:
    console = Console()
    try:
        return run_or_report(lambda: _run(args, console))
    except KeyboardInterrupt:
        console.print(
            "Stopped. Run the same command again to continue.",
            style="yellow",
        )
        return 130


def _run(args: argparse.Namespace, console: Console) -> int:
    to_evaluate = {
        name: load_prompts(
            args.families or families_for(resolve(name).is_chat), args.seed, args.prompts
        )
        for name in args.checkpoints
    }
    grids = {name: grid_of(args, prompt_sets) for name, prompt_sets in to_evaluate.items()}
    at_least_one(args, "batch_size", "threads")
    check_file(args.out)
    _check_replaceable(args.out)
    cells = args.out.with_name(args.out.stem + ".cells.jsonl")
    check_file(cells)
    cells.touch()
    with only_writer(cells):
        store = CellStore(cells, is_fresh=args.restart)
        results: dict[GridCell, Sequence[Outcome]] = {}
        for name, prompt_sets in to_evaluate.items():
            results |= _evaluated(name, grids[name], prompt_sets, store, args, console)
        content = document(results, arguments_of(args))
        write_text(args.out, json.dumps(content, ensure_ascii=False, indent=1))
        console.print(report.table(results).to_rich(), crop=False)
        console.print(f"Written to {args.out}", markup=False)
    return 0


def _evaluated(
    name: str,
    grid: Grid,
    prompt_sets: Sequence[PromptSet],
    store: CellStore,
    args: argparse.Namespace,
    console: Console,
) -> dict[GridCell, Sequence[Outcome]]:
    from mars_runtime.lab.evaluation.run import evaluate, plan_cells

    model, trained = _load(name, args)
    limited = grid.limited_to(trained, fills_blocks=model.fills_blocks)
    if replace(limited, methods=grid.methods) != grid:
        console.print(f"{name} was trained for B up to {trained}. Larger values are skipped.")
    cells = plan_cells(model, limited, prompt_sets)
    results: dict[GridCell, Sequence[Outcome]] = {}
    with progress_bars(console) as progress:
        bar = progress.add_task(model.name, total=sum(cell.num_prompts for cell in cells))
        on_rows = partial(progress.advance, bar)
        for cell, outcomes in evaluate(model, cells, prompt_sets, store, args.batch_size, on_rows):
            results[cell] = outcomes
            progress.update(bar, description=cell.label)
    return results


def grid_of(args: argparse.Namespace, prompt_sets: Sequence[PromptSet]) -> Grid:
    """Return the grid; tasks and requests have different defaults. Raises SettingsError."""
    default = REQUESTS_GRID if all(prompt_set.is_open for prompt_set in prompt_sets) else Grid()
    values = {field.name: getattr(args, field.name) for field in fields(Grid)}
    frozen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }
    grid = replace(default, **frozen)
    list(grid.settings())  # validates all values
    return grid


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


def document(results: report.Results, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{"kind": "evaluation", "version": 2},
        **provenance(),
        "asked": arguments,
        **report.to_json(results),
    }


def _load(name: str, args: argparse.Namespace) -> tuple[EvalModel, int]:
    import torch

    from mars_runtime.lab.evaluation.run import eval_model_of
    from mars_runtime.model.load import load_checkpoint

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    checkpoint = load_checkpoint(name, device=args.device, dtype=args.dtype)
    return eval_model_of(checkpoint), checkpoint.diffusion_size or checkpoint.block_size
