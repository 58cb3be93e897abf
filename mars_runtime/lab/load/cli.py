"""``python -m mars_runtime load``: this machine under load, in one run.

Throughput of shared forwards against one request at a time; the first token of a newcomer, its
prompt read in parts or at once; the second turn of a conversation with and without what is kept;
where the machine is saturated, and what a controller of τ makes of 80 and 120 % of that; a day of
traffic, simulated from what was measured. Every part is written as soon as it is done, so a run
that is stopped loses nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.outputs import check_file, path_of, write_text

if TYPE_CHECKING:
    from mars_runtime.lab.load.document import Document, Section
    from mars_runtime.lab.load.measurements import Bench, Options, Part
    from mars_runtime.model.load import Checkpoint

PARTS = ("throughput", "first-token", "second-turn", "controller", "day")
MAX_ROWS = 64


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``load`` command."""
    parser = subparsers.add_parser("load", help="this machine under load")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="all of them")
    add("--rows", type=int, default=8, help="requests that share forwards (%(default)s)")
    add("--seconds", type=float, default=20.0, help="of arrivals, each time (%(default)s)")
    add("--rounds", type=int, default=2, help="of the controller's comparison (%(default)s)")
    add("--prompts", type=int, default=16, help="of the throughput (%(default)s)")
    add("--max-new-tokens", type=int, default=48, help="of an answer (%(default)s)")
    add("--seed", type=int, default=0, help="which prompts and arrivals are drawn")
    add("--device", default="cpu")
    add("--dtype", default="auto")
    add("--out", type=path_of, default=Path("runs/load.json"))


def run(args: argparse.Namespace) -> int:
    """Measure, print, write ``--out`` and the same as Markdown. Returns the exit code."""
    console = Console()
    return run_or_say(lambda: _run(args, console))


def _run(args: argparse.Namespace, console: Console) -> int:
    options, load_before = options_of(args), os.getloadavg()[0]
    for path in (args.out, args.out.with_suffix(".md")):
        check_file(path)
    from mars_runtime.engine import Engine
    from mars_runtime.engine.backend import CheckpointBackend
    from mars_runtime.lab.load.measurements import Bench
    from mars_runtime.model.load import load_checkpoint

    checkpoint = load_checkpoint(options.checkpoint, device=args.device, dtype=args.dtype)
    with Engine(CheckpointBackend(checkpoint, keeps=False), max_runs=options.rows) as engine:
        engine.costs()
        parts = parts_of(args.parts, Bench(options, checkpoint, engine))
        document = _documents(args, checkpoint, load_before)
        is_whole = _measure(parts, console, lambda found: _write(args.out, document(found, False)))
    sections = [section for part in parts if (section := part.section()) is not None]
    found = document(sections, is_whole)
    _write(args.out, found)
    show(found, console)
    console.print(f"Written to {args.out} and {args.out.with_suffix('.md')}", markup=False)
    return 0 if is_whole else 130


def options_of(args: argparse.Namespace) -> Options:
    """What was asked, checked. Raises PromptError."""
    from mars_runtime.lab.load.measurements import Options

    for value, what in ((args.rounds, "rounds"), (args.prompts, "prompts")):
        if value < 1:
            raise PromptError(f"Ask for at least 1 of {what}.")
    if not 2 <= args.rows <= MAX_ROWS:
        raise PromptError(f"Ask for 2 to {MAX_ROWS} rows.")
    if not 0.5 <= args.seconds <= 3600:
        raise PromptError("Ask for 0.5 to 3600 seconds of arrivals.")
    if not 2 <= args.max_new_tokens <= 1024:
        raise PromptError("Ask for answers of 2 to 1024 tokens.")
    return Options(
        args.checkpoint, args.rows, args.seconds, args.rounds, args.max_new_tokens, args.prompts,
        args.seed,
    )  # fmt: skip


def parts_of(names: list[str], bench: Bench) -> list[Part]:
    """The parts by their names, in the order of the document."""
    from mars_runtime.lab.load import measurements as of

    curve = of.Curve(bench)
    parts: dict[str, list[Part]] = {
        "throughput": [of.Throughput(bench)],
        "first-token": [of.FirstToken(bench)],
        "second-turn": [of.SecondTurn(bench)],
        "controller": [curve, of.Follow(bench, curve)],
        "day": [of.Day(bench)],
    }
    return [part for name, each in parts.items() if name in names for part in each]


def show(found: Document, console: Console) -> None:
    """Print where it ran, what to doubt and every table."""
    console.print(found.place, markup=False)
    for warning in found.warnings:
        console.print(warning, style="yellow", markup=False)
    for section in found.sections:
        for sentence in section.told:
            console.print(sentence, markup=False, highlight=False)
        console.print(section.table.to_rich(), crop=False)


def _measure(parts: list[Part], console: Console, keep: Callable[[list[Section]], None]) -> bool:
    """Measure one part after the other and keep what is known; whether none was stopped."""
    try:
        for number, part in enumerate(parts, 1):
            for line in part.measure():
                console.print(f"{type(part).__name__}: {line}", markup=False, highlight=False)
            done = [each.section() for each in parts[:number]]
            keep([section for section in done if section is not None])
    except KeyboardInterrupt:
        console.print("Stopped. What was measured is kept.", style="yellow")
        return False
    return True


def _documents(
    args: argparse.Namespace, checkpoint: Checkpoint, load_before: float
) -> Callable[[list[Section], bool], Document]:
    """What makes a document of sections; others on the machine are counted from now on."""
    from mars_runtime.engine.backend import num_threads
    from mars_runtime.lab.load.document import Document
    from mars_runtime.machine import num_cores
    from mars_runtime.provenance import Others, Quiet, fingerprint, provenance

    others, origin = Others(), provenance()
    subject = {
        "name": checkpoint.name,
        "fingerprint": fingerprint(checkpoint.weight_files),
        "dtype": checkpoint.model.arithmetic,
        "device": str(checkpoint.model.device),
        "threads": num_threads(checkpoint),
    }
    asked = {key: value for key, value in vars(args).items() if key not in ("out", "command")}

    def make(sections: list[Section], is_whole: bool) -> Document:
        quiet = Quiet(num_cores(), load_before, others.share(), None)
        return Document(origin, subject, asked, quiet, sections, is_whole)

    return make


def _write(out: Path, found: Document) -> None:
    text = json.dumps(found.to_json(), ensure_ascii=False, indent=1, default=_plain)
    write_text(out, text)
    write_text(out.with_suffix(".md"), found.to_markdown())


def _plain(value: object) -> Mapping[str, Any]:
    """Figures that are values of their own, such as estimates."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(type(value).__name__)
