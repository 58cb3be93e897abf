"""``python -m mars_runtime length``: what a growing text costs, from its beginning to 4,000 tokens.

Plain AR holds a conversation until there is no room left; every other way then answers the same
prompts behind AR's earlier answers, alone on the device. Figures stand by where in the text a
forward was. Tokens per forward do not depend on the machine; times do, and want a quiet one.
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
from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.lab.tables import Table
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import fingerprint, provenance
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.statistics import percentile
from mars_runtime.text import Turn

if TYPE_CHECKING:
    from mars_runtime.engine import Engine
    from mars_runtime.text import Tokenizer

NUM_QUESTIONS = 60


@dataclass(frozen=True, slots=True)
class Forward:
    """position: of the first token it wrote, in prompt and answer together."""

    position: int
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """A way of decoding between two positions of the text, ``end`` not among them.

    ms_per_token: milliseconds of forwards per token. waits: milliseconds from one token to the
    next, p50, p95 and p99 over tokens; those of one forward come together, all but the first
    without a wait. cache_bytes: keys and values of a text that reaches ``end``.
    """

    way: str
    start: int
    end: int
    num_tokens: int
    tpf: float
    ms_per_token: float
    waits: tuple[float, float, float]
    cache_bytes: int


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``length`` command."""
    parser = subparsers.add_parser("length", help="what a growing text costs")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add("--ends", type=int, nargs="+", default=[250, 1000, 2000, 4000], help="of the stretches")
    add("--max-new-tokens", type=int, default=192, help="of an answer (%(default)s)")
    add("--threads", type=int, default=None, help="CPU threads")
    add("--out", type=path_of, default=Path("runs/length.json"))


def run(args: argparse.Namespace) -> int:
    """Converse, print, write. Returns the exit code."""
    return run_or_say(lambda: _run(args))


def ways(limit: int) -> tuple[DecodeSettings, ...]:
    """AR, lossless by masks alone, and a fixed threshold."""
    return (
        DecodeSettings("ar", 1.0, 1, max_new_tokens=limit),
        DecodeSettings(tau=0.0, lossless=True, groups="every", max_new_tokens=limit),
        DecodeSettings(tau=0.95, max_new_tokens=limit),
    )


def _run(args: argparse.Namespace) -> int:
    ends = sorted(set(args.ends))
    if ends[0] < 1:
        raise PromptError("Stretches end at whole numbers of tokens, from 1 on.")
    settings = ways(args.max_new_tokens)
    check_file(args.out)
    import torch

    from mars_runtime.engine import Engine
    from mars_runtime.engine.backend import CheckpointBackend
    from mars_runtime.engine.memory import slot_bytes
    from mars_runtime.model.load import load_checkpoint

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    checkpoint = load_checkpoint(args.checkpoint)
    with Engine(CheckpointBackend(checkpoint, keeps=False), max_runs=1) as engine:
        room = min(ends[-1], engine.capacity)
        prompts, first = converse(engine, checkpoint.tokenizer, room, settings[0])
        found = {describe(settings[0]): first}
        for way in settings[1:]:
            found[describe(way)] = [f for ids in prompts for f in answer(engine, ids, way)[0]]
    per_token = slot_bytes(checkpoint.model)
    stretches = [s for way, own in found.items() for s in stretches_of(way, own, ends, per_token)]
    table = table_of(checkpoint.name, stretches)
    Console().print(table.to_rich(), crop=False)
    told = {"kind": "length", "version": 1, **provenance(), "checkpoint": checkpoint.name}
    told["fingerprint"] = fingerprint(checkpoint.weight_files)
    told["stretches"] = [asdict(one) for one in stretches]
    write_text(args.out, json.dumps(told, ensure_ascii=False, indent=1))
    write_text(args.out.with_suffix(".md"), table.to_markdown() + "\n")
    return 0


def converse(
    engine: Engine, tokenizer: Tokenizer, room: int, settings: DecodeSettings
) -> tuple[list[list[int]], list[Forward]]:
    """The prompts of a conversation that fills ``room``, and what answering them took. Raises
    PromptError where not even a first answer has room."""
    history: list[Turn] = []
    prompts: list[list[int]] = []
    found: list[Forward] = []
    for task in tasks.generate("chat", "eval", 0, NUM_QUESTIONS):
        ids = tokenizer.encode_prompt(task.prompt, history)
        if len(ids) + settings.max_new_tokens > room:
            break
        prompts.append(ids)
        forwards, written = answer(engine, ids, settings)
        found += forwards
        said = tuple(token for token in written if token not in tokenizer.eos_ids)
        history.append(Turn(task.prompt, said))
    if not prompts:
        raise PromptError("No answer has room: ask for fewer tokens or a later end.")
    return prompts, found


def answer(
    engine: Engine, ids: Sequence[int], settings: DecodeSettings
) -> tuple[list[Forward], list[int]]:
    """The forwards of one answer, alone on the device, and its tokens."""
    from mars_runtime.engine import Request
    from mars_runtime.engine.request import MAX_DEADLINE
    from mars_runtime.folds import row_steps

    steps = list(row_steps(engine.submit(Request(ids, settings, MAX_DEADLINE), is_alone=True)))
    found = [
        Forward(len(ids) + step.start, len(step.accepted), seconds)
        for step, seconds in steps
        if step.accepted
    ]
    return found, [token for step, _ in steps for token in step.accepted]


def stretches_of(
    way: str, found: Sequence[Forward], ends: Sequence[int], bytes_per_token: int
) -> Iterator[Stretch]:
    """The stretches that any forward fell into."""
    for start, end in pairwise([0, *ends]):
        own = [each for each in found if start <= each.position < end]
        if not own:
            continue
        num_tokens = sum(each.num_tokens for each in own)
        seconds = [s for each in own for s in (each.seconds, *[0.0] * (each.num_tokens - 1))]
        waits = [1000 * wait for wait in seconds]
        yield Stretch(
            way=way,
            start=start,
            end=end,
            num_tokens=num_tokens,
            tpf=num_tokens / len(own),
            ms_per_token=sum(waits) / num_tokens,
            waits=(percentile(waits, 50), percentile(waits, 95), percentile(waits, 99)),
            cache_bytes=bytes_per_token * end,
        )


def table_of(name: str, stretches: Sequence[Stretch]) -> Table:
    """One line per way and stretch."""
    lines = tuple(
        (
            one.way,
            f"{one.start:,} to {one.end:,}",
            f"{one.num_tokens:,}",
            f"{one.tpf:.2f}",
            f"{one.ms_per_token:.1f}",
            " / ".join(f"{wait:.1f}" for wait in one.waits),
            f"{one.cache_bytes / 1e6:.0f}",
        )
        for one in stretches
    )
    columns = ("way", "place", "tokens", "TPF", "ms/token", "wait p50 / p95 / p99, ms", "MB kept")
    return Table(f"A text that grows: {name}", columns, lines)
