"""``python -m mars_runtime length``: tokens per forward pass and time per token along a long text.

AR continues a conversation until the context is full. Lossless MARS and MARS with a fixed τ then
answer the same prompts after AR's earlier answers, without sharing the device. Tokens per forward
pass do not depend on the machine; times need a quiet one.
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
"""More questions than fit into any context here."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass: how many tokens were in the text before it, how many it added, its time."""

    position: int
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """The forward passes of a method between two lengths of the text."""

    way: str
    start: int
    end: int
    num_tokens: int
    tpf: float
    ms_per_token: float


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``length`` command."""
    parser = subparsers.add_parser("length", help="speed along a text that grows")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="name or folder (%(default)s)")
    add("--ends", type=int, nargs="+", default=[250, 1000, 2000, 4000],
        help="lengths of the text at which a row of the table ends")  # fmt: skip
    add("--max-new-tokens", type=int, default=192, help="per answer (%(default)s)")
    add("--threads", type=int, default=None, help="CPU threads")
    add("--out", type=path_of, default=Path("runs/length.json"))


def run(args: argparse.Namespace) -> int:
    """Measure, print, write ``--out``. Return the exit code."""
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
        room = min(ends[-1], engine.capacity)
        prompts, forwards = converse(engine, checkpoint.tokenizer, room, ar)
        found = {describe(ar): forwards}
        for settings in others:
            answers = [answer(engine, ids, settings)[0] for ids in prompts]
            found[describe(settings)] = [forward for own in answers for forward in own]
    stretches = [one for way, own in found.items() for one in stretches_of(way, own, ends)]
    Console().print(table_of(checkpoint.name, stretches).to_rich(), crop=False)
    document = {"kind": "length", "version": 2, **provenance(), "checkpoint": checkpoint.name}
    document["fingerprint"] = fingerprint(checkpoint.weight_files)
    document["stretches"] = [asdict(one) for one in stretches]
    write_text(args.out, json.dumps(document, ensure_ascii=False, indent=1))
    return 0


def converse(
    engine: Engine, tokenizer: Tokenizer, room: int, settings: DecodeSettings
) -> tuple[list[list[int]], list[Forward]]:
    """Hold a conversation that fills ``room`` tokens; return its prompts and the forward passes.

    Raises UsageError if not even one answer fits.
    """
    history: list[Turn] = []
    prompts: list[list[int]] = []
    forwards: list[Forward] = []
    for task in tasks.generate("chat", "eval", 0, NUM_QUESTIONS):
        ids = tokenizer.encode_prompt(task.prompt, history)
        if len(ids) + settings.max_new_tokens > room:
            break
        prompts.append(ids)
        own, tokens = answer(engine, ids, settings)
        forwards += own
        reply = tuple(token for token in tokens if token not in tokenizer.eos_ids)
        history.append(Turn(task.prompt, reply))
    if not prompts:
        raise UsageError("No answer fits: reduce --max-new-tokens or increase --ends.")
    return prompts, forwards


def answer(
    engine: Engine, ids: Sequence[int], settings: DecodeSettings
) -> tuple[list[Forward], list[int]]:
    """Return the forward passes of one answer and its tokens."""
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
    """Yield a stretch for each pair of ends that has a forward pass between them."""
    for start, end in pairwise([0, *ends]):
        own = [one for one in forwards if start <= one.position < end]
        if own:
            num_tokens = sum(one.num_tokens for one in own)
            ms = 1000 * sum(one.seconds for one in own) / num_tokens
            yield Stretch(way, start, end, num_tokens, num_tokens / len(own), ms)


def table_of(name: str, stretches: Sequence[Stretch]) -> Table:
    """Return a row per method and stretch."""
    columns = {
        "method": lambda one: one.way,
        "place in the text": lambda one: f"{one.start:,} to {one.end:,}",
        "tokens": lambda one: f"{one.num_tokens:,}",
        "TPF": lambda one: f"{one.tpf:.2f}",
        "ms/token": lambda one: f"{one.ms_per_token:.1f}",
    }
    return Table.of(f"A text that grows: {name}", stretches, columns)
