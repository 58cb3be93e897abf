"""``python -m mars_runtime length``: measure how speed depends on the length of the text.

AR continues a conversation until the context is full. Then lossless MARS and MARS with a fixed τ
answer the prompts of this conversation, with AR's earlier answers as history. Only one run uses the
device at a time. Tokens per forward pass do not depend on the machine, but times need an idle
machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mars_runtime import tasks
from mars_runtime.lab.commands import UsageError, at_least_one, run_or_report
from mars_runtime.lab.tables import Table
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import fingerprint, provenance
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.text import Tokenizer, Turn

if TYPE_CHECKING:
    from mars_runtime.engine import Engine

NUM_QUESTIONS = 400
"""Number of prompts to generate; more than fit into the context of any checkpoint."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass. position: the number of tokens in the text before the pass.

    num_tokens: the number of tokens that the pass added.
    """

    position: int
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Figures of a method for the part of the text between the positions ``start`` and ``end``."""

    way: str
    start: int
    end: int
    num_tokens: int
    tpf: float
    ms_per_token: float


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("length", help="measure speed by the length of the text")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="name or folder (%(default)s)")
    add("--ends", type=int, nargs="+", default=[250, 1000, 2000, 4000],
        help="text lengths, in tokens, at which the parts of the text end")  # fmt: skip
    add("--max-new-tokens", type=int, default=192,
        help="maximum number of tokens per answer (%(default)s)")  # fmt: skip
    add("--threads", type=int, default=None, help="CPU threads")
    add("--out", type=path_of, default=Path("runs/length.json"))


def run(args: argparse.Namespace) -> int:
    return run_or_report(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    at_least_one(args, "ends", "max_new_tokens", "threads")
    ends, limit = sorted(set(args.ends)), args.max_new_tokens
    ar = DecodeSettings("ar", 1.0, 1, max_new_tokens=limit)
    others = (
        DecodeSettings(tau=0.0, lossless=True, mask_layout="every", max_new_tokens=limit),
        DecodeSettings(tau=0.95, max_new_tokens=limit),
    )
    check_file(args.out)
    import torch

    from mars_runtime.engine import Engine
    from mars_runtime.engine.backend import CheckpointBackend
    from mars_runtime.model.load import load_checkpoint

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    checkpoint = load_checkpoint(args.checkpoint)
    with Engine(CheckpointBackend(checkpoint, keeps=False), max_runs=1) as engine:
        capacity = min(ends[-1], engine.capacity)
        prompts, forwards = converse(engine, checkpoint.tokenizer, capacity, ar)
        by_method = {describe(ar): forwards}
        for settings in others:
            answers = [answer(engine, ids, settings)[0] for ids in prompts]
            by_method[describe(settings)] = [forward for passes in answers for forward in passes]
    stretches = [
        stretch
        for method, passes in by_method.items()
        for stretch in stretches_of(method, passes, ends)
    ]
    Console().print(table_of(checkpoint.name, stretches).to_rich(), crop=False)
    document = {"kind": "length", "version": 2, **provenance(), "checkpoint": checkpoint.name}
    document["fingerprint"] = fingerprint(checkpoint.weight_files)
    document["stretches"] = [asdict(stretch) for stretch in stretches]
    write_text(args.out, json.dumps(document, ensure_ascii=False, indent=1))
    return 0


def converse(
    engine: Engine, tokenizer: Tokenizer, capacity: int, settings: DecodeSettings
) -> tuple[list[list[int]], list[Forward]]:
    """Decode a conversation that fills ``capacity`` tokens; return its prompts and forward passes.

    Raises UsageError if the first answer does not fit.
    """
    history: list[Turn] = []
    prompts: list[list[int]] = []
    forwards: list[Forward] = []
    for task in tasks.generate("chat", "eval", 0, NUM_QUESTIONS):
        ids = tokenizer.encode_prompt(task.prompt, history)
        if len(ids) + settings.max_new_tokens > capacity:
            break
        prompts.append(ids)
        passes, tokens = answer(engine, ids, settings)
        forwards += passes
        reply = tuple(token for token in tokens if token not in tokenizer.eos_ids)
        history.append(Turn(task.prompt, reply))
    if not prompts:
        raise UsageError("No answer fits: reduce --max-new-tokens or increase --ends.")
    return prompts, forwards


def answer(
    engine: Engine, ids: Sequence[int], settings: DecodeSettings
) -> tuple[list[Forward], list[int]]:
    """Decode the answer to a prompt; return its forward passes and its tokens."""
    from mars_runtime.engine import Request
    from mars_runtime.engine.request import MAX_DEADLINE
    from mars_runtime.folds import row_steps

    steps = list(row_steps(engine.submit(Request(ids, settings, MAX_DEADLINE), is_alone=True)))
    forwards = [
        Forward(len(ids) + step.start, len(step.accepted), seconds)
        for step, seconds in steps
        if step.accepted
    ]
    return forwards, [token for step, _ in steps for token in step.accepted]


def stretches_of(way: str, forwards: Sequence[Forward], ends: Sequence[int]) -> Iterator[Stretch]:
    """Yield the figures of each part of the text between consecutive positions in ``ends``.

    Parts without a forward pass are skipped.
    """
    for start, end in pairwise([0, *ends]):
        passes = [forward for forward in forwards if start <= forward.position < end]
        if passes:
            num_tokens = sum(forward.num_tokens for forward in passes)
            ms = 1000 * sum(forward.seconds for forward in passes) / num_tokens
            yield Stretch(way, start, end, num_tokens, num_tokens / len(passes), ms)


def table_of(name: str, stretches: Sequence[Stretch]) -> Table:
    """Return a table with one row per method and part of the text."""
    columns = {
        "method": lambda row: row.way,
        "position in the text": lambda row: f"{row.start:,} to {row.end:,}",
        "tokens": lambda row: f"{row.num_tokens:,}",
        "TPF": lambda row: f"{row.tpf:.2f}",
        "ms/token": lambda row: f"{row.ms_per_token:.1f}",
    }
    return Table.of(f"Speed by position in the text: {name}", stretches, columns)
