"""``python -m mars_runtime layers``: at which layer masks settle on their token, over many prompts.

Lossless answers with one group of masks after the last draft, whatever their confidence; some
forwards of each are run again and read after every layer (``mars_runtime/layers.py``, where source
and limits stand). A mask is accepted if the answer goes on with what it proposed, and with what all
masks before it did. Depends on no clock.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from rich.console import Console

from mars_runtime import tasks
from mars_runtime.lab.commands import run_or_say
from mars_runtime.lab.evaluation.prompts import PromptError, load_prompts
from mars_runtime.lab.tables import NONE, Table
from mars_runtime.layers import Fed, Layers, counted_masks
from mars_runtime.outputs import check_file, path_of, write_text
from mars_runtime.provenance import fingerprint, provenance
from mars_runtime.settings import DecodeSettings
from mars_runtime.statistics import percentile
from mars_runtime.terminal import progress_bars

if TYPE_CHECKING:
    from mars_runtime.engine import Engine
    from mars_runtime.events import RowStep

Look = Callable[[Fed], Layers]


@dataclass(frozen=True, slots=True)
class Mask:
    """One mask of a forward. number: its place in its group, from 1. settled: the first layer from
    which on its likeliest token is the last layer's; real: the same of the real token that the
    answer has in its place. is_reranked: a sampler head proposed another of its candidates."""

    kind: str
    number: int
    is_accepted: bool
    settled: int
    real: int
    is_reranked: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """All masks that were looked at, of a model of so many layers."""

    num_layers: int
    masks: tuple[Mask, ...]

    def table(self) -> Table:
        """A line for each place in a group, and one for all."""
        numbers = sorted({mask.number for mask in self.masks})
        named = {f"mask {number}": number for number in numbers}
        lines = [
            _line(name, [mask for mask in self.masks if mask.number == number])
            for name, number in named.items()
        ]
        columns = (
            f"of {self.num_layers} layers",
            "accepted",
            "settle at layer",
            "the real token there",
            "refused",
            "settle at layer",
            "the real token there",
            "reranked",
        )
        return Table("", columns, (*lines, _line("all", self.masks)))


def _line(name: str, masks: Sequence[Mask]) -> tuple[str, ...]:
    cells: list[str] = []
    for is_accepted in (True, False):
        own = [mask for mask in masks if mask.is_accepted == is_accepted]
        cells += [
            f"{len(own):,}",
            _spread([mask.settled for mask in own]),
            _spread([mask.real for mask in own]),
        ]
    share = sum(mask.is_reranked for mask in masks) / len(masks)
    return (name, *cells, f"{100 * share:.0f} %")


def _spread(layers: Sequence[int]) -> str:
    """``24 [20, 27]``: the median and the quartiles."""
    if not layers:
        return NONE
    low, middle, high = (percentile(layers, share) for share in (25, 50, 75))
    return f"{middle:.0f} [{low:.0f}, {high:.0f}]"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``layers`` command."""
    parser = subparsers.add_parser("layers", help="at which layer masks settle on their token")
    add = parser.add_argument
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add("--families", nargs="+", default=list(tasks.KINDS), help="of prompts")
    add("--prompts", type=int, default=8, help="of each family (%(default)s)")
    add("--forwards", type=int, default=8, help="of each answer (%(default)s)")
    add("--block-size", type=int, default=4, help="B; its masks are one fewer (%(default)s)")
    add("--max-new-tokens", type=int, default=96, help="of an answer (%(default)s)")
    add("--out", type=path_of, default=Path("runs/layers.json"))


def run(args: argparse.Namespace) -> int:
    """Decode, look, print, write. Returns the exit code."""
    return run_or_say(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    if args.forwards < 1 or args.block_size < 2:
        raise PromptError("Ask for at least one forward of each answer, and a B of at least 2.")
    settings = DecodeSettings(
        tau=0.0,
        block_size=args.block_size,
        lossless=True,
        lookup=False,
        max_new_tokens=args.max_new_tokens,
    )
    prompts = load_prompts(args.families, 0, args.prompts)
    check_file(args.out)

    from mars_runtime.engine import Engine
    from mars_runtime.model.load import load_checkpoint

    checkpoint = load_checkpoint(args.checkpoint)
    console, masks = Console(), list[Mask]()
    with Engine(checkpoint, max_runs=1) as engine, progress_bars(console) as bars:
        for family in prompts:
            for task in bars.track(family.tasks, description=family.family):
                ids = checkpoint.tokenizer.encode_prompt(task.prompt)
                rows = _decoded(engine, ids, settings)
                look = partial(_looked, engine)
                masks += masks_of(family.family, ids, rows, args.forwards, look)
    if not masks:
        raise PromptError("No forward fed masks: choose a checkpoint that was trained for them.")
    measured = Measured(checkpoint.model.config.num_layers, tuple(masks))
    console.print(measured.table().to_rich(), crop=False)
    told = {"kind": "layers", "version": 1, **provenance(), "checkpoint": checkpoint.name}
    told["fingerprint"] = fingerprint(checkpoint.weight_files)
    told["arguments"] = {name: value for name, value in vars(args).items() if name in KEPT}
    told["measured"] = asdict(measured)
    write_text(args.out, json.dumps(told, ensure_ascii=False))
    return 0


KEPT = ("families", "prompts", "forwards", "block_size", "max_new_tokens")


def _decoded(engine: Engine, ids: Sequence[int], settings: DecodeSettings) -> list[RowStep]:
    from mars_runtime.engine import Request
    from mars_runtime.engine.request import MAX_DEADLINE
    from mars_runtime.folds import row_steps

    return [row for row, _ in row_steps(engine.submit(Request(ids, settings, MAX_DEADLINE)))]


def _looked(engine: Engine, fed: Fed) -> Layers:
    return engine.look(fed).result()


def masks_of(
    kind: str, prompt: Sequence[int], rows: Sequence[RowStep], count: int, look: Look
) -> Iterator[Mask]:
    """The masks of ``count`` forwards of an answer, as evenly spread as can be."""
    fed_masks = [index for index, row in enumerate(rows) if row.num_fed > row.num_pending]
    step = max(1, len(fed_masks) // count)
    for index in fed_masks[::step][:count]:
        fed = Fed.by(prompt, rows, index)
        found = look(fed)
        real = {column.position: column.settled for column in found.real}
        first = len(prompt) + rows[index].start  # the place of the first proposal
        is_accepted = True
        for number, column in enumerate(counted_masks(fed, found.columns), 1):
            place = column.position + 1
            at = place - first
            if not 0 <= at < len(rows[index].proposals) or place >= len(fed.text):
                break  # the answer ended before
            proposed = rows[index].proposals[at].token
            is_accepted = is_accepted and proposed == fed.text[place]
            yield Mask(
                kind,
                number,
                is_accepted,
                column.settled,
                real[column.position],
                is_reranked=proposed != column.says[-1][0],
            )


def measured_in(content: Any) -> Measured:
    """What a result of this command holds. Raises pydantic's ValidationError."""
    return TypeAdapter(Measured).validate_python(content["measured"])
