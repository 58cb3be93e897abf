"""``python -m mars_runtime review``: make sets of answers to read, and work on what people judged.

review make prompts.jsonl --ways ar tau=0.8 lossless --out set/
review show set/
review pack set/ --out set.tar.xz
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mars_runtime.outputs import OutputError, path_of, write_text
from mars_runtime.review.prompts import (
    Item,
    PromptError,
    bundled,
    decoded,
    read_prompts,
    with_system,
)
from mars_runtime.review.ways import read_ways
from mars_runtime.settings import SettingsError
from mars_runtime.text import TextError, check_system

if TYPE_CHECKING:
    from mars_runtime.review.making import Decoder

MAX_TOKENS = 128


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``review`` command and what it can do."""
    parser = subparsers.add_parser("review", help="sets of answers to read, and their judgements")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    making = verbs.add_parser("make", help="decode prompts in several ways; can be continued")
    add = making.add_argument
    add("prompts", help="a file (text, CSV, TSV, JSON), or study, requests, a family of tasks")
    add("--ways", nargs="+", required=True, help="such as ar tau=0.8 lossless tau=0.5,B=8")
    add("--reference", default="", help="the method that the others are compared with (the first)")
    add("--out", type=path_of, required=True, help="the folder of the set")
    add("--name", default="", help="what the set is called (the name of its folder)")
    add("--system", default="", help="system prompt of prompts without one (the checkpoint's own)")
    add("--checkpoint", default="mars-smollm2", help="a name or a folder (%(default)s)")
    add(
        "--max-new-tokens",
        type=int,
        default=MAX_TOKENS,
        help="longest answer, in tokens (%(default)s)",
    )
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="auto, fp32, bf16 or int8 (%(default)s)")
    making.set_defaults(work=_make)
    showing = verbs.add_parser("show", help="what automatic marks say of each way, as JSON")
    showing.add_argument("set", type=path_of, help="a folder or an archive")
    showing.add_argument("--out", type=path_of, help="a file to write instead")
    showing.set_defaults(work=_show)
    exporting = verbs.add_parser("export", help="CSV, JSON Lines, HTML, LLM Comparator")
    exporting.add_argument("set", type=path_of, help="a folder or an archive")
    exporting.add_argument("--judgements", type=Path, help="a file; without it marks only")
    exporting.add_argument("--out", type=path_of, required=True, help="the folder to write")
    exporting.set_defaults(work=_export)
    merging = verbs.add_parser("merge", help="files of several reviewers as one")
    merging.add_argument("set", type=path_of, help="a folder or an archive")
    merging.add_argument("files", nargs="+", type=Path, help="files of judgements")
    merging.add_argument("--out", type=path_of, required=True, help="the file to write")
    merging.set_defaults(work=_merge)
    packing = verbs.add_parser("pack", help="a set as one file")
    packing.add_argument("set", type=path_of, help="a folder")
    packing.add_argument("--out", type=path_of, required=True, help="the archive to write")
    packing.set_defaults(work=_pack)


def run(args: argparse.Namespace) -> int:
    """Do it; the exit code. A mistake of the user is one sentence and exit code 2."""
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.review.judgements import JudgementError
    from mars_runtime.review.sets import SetError

    mistakes = (
        *(PromptError, SettingsError, SetError, JudgementError),
        *(OutputError, CheckpointError, TextError),
    )
    work: Callable[[argparse.Namespace], int] = args.work
    try:
        return work(args)
    except mistakes as error:
        print(error, file=sys.stderr)
        return 2


def _make(args: argparse.Namespace) -> int:
    items = with_system(_items(args.prompts), check_system(args.system))
    usual = {"max_new_tokens": args.max_new_tokens}
    ways = read_ways(args.ways, args.checkpoint, **usual)
    names = [way.name for way in ways]
    if args.reference and args.reference not in names:
        raise SettingsError(f"The reference must be one of the ways: {', '.join(names)}.")
    from rich.console import Console

    from mars_runtime.review.making import begin, make
    from mars_runtime.terminal import progress_bars

    console = Console(stderr=True)
    with ExitStack() as stack:
        loaded = Loaded(args.device, args.dtype, stack)
        reference = names.index(args.reference) if args.reference else 0
        name = args.name or args.out.name
        review = begin(args.out, name, items, ways, loaded, reference)
        stack.enter_context(review.only_writer())
        with progress_bars(console) as bars:
            bar = bars.add_task("answers")
            for progress in make(review, loaded):
                bars.update(bar, completed=progress.num_done, total=progress.num_all)
    for sentence in progress.refused:
        print(sentence, file=sys.stderr)
    print(f"{progress.num_done} of {progress.num_all} answers are in {args.out}.")
    return 1 if progress.refused else 0


class Loaded:
    """Checkpoints by name with an engine each, from their first use until ``stack`` is left."""

    def __init__(self, device: str, dtype: str, stack: ExitStack) -> None:
        self._device, self._dtype, self._stack = device, dtype, stack
        self._decoders: dict[str, Decoder] = {}

    def __call__(self, name: str) -> Decoder:
        """What decodes with it. Raises CheckpointError."""
        from mars_runtime.engine import Engine
        from mars_runtime.engine.backend import CheckpointBackend
        from mars_runtime.model.load import load_checkpoint
        from mars_runtime.review.making import AT_ONCE, Decoder

        if name not in self._decoders:
            checkpoint = load_checkpoint(name, device=self._device, dtype=self._dtype)
            backend = CheckpointBackend(checkpoint, keeps=False)
            engine = self._stack.enter_context(Engine(backend, max_runs=AT_ONCE))
            self._decoders[name] = Decoder.here(engine, checkpoint)
        return self._decoders[name]


def _items(source: str) -> list[Item]:
    """The prompts of a file, what is wrong with its other lines told; or bundled ones by name."""
    path = Path(source)
    if not path.is_file():
        return bundled(source)
    found = read_prompts(_text(path), name=path.name)
    for fault in found.faults:
        print(fault, file=sys.stderr)
    return found.items


def _text(path: Path) -> str:
    """What a file holds. Raises PromptError."""
    try:
        return decoded(path.read_bytes())
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not text in UTF-8: save it as UTF-8.") from error
    except OSError as error:
        raise PromptError(f"{path} cannot be read ({error.strerror}).") from error


def _show(args: argparse.Namespace) -> int:
    from mars_runtime.review.figures import study
    from mars_runtime.review.sets import ReviewSet

    text = json.dumps(study(ReviewSet.open(args.set)), ensure_ascii=False, indent=1) + "\n"
    if args.out is None:
        print(text, end="")
    else:
        write_text(args.out, text)
    return 0


def _export(args: argparse.Namespace) -> int:
    from mars_runtime.review import exports
    from mars_runtime.review.sets import ReviewSet

    review = ReviewSet.open(args.set)
    rows = exports.read_jsonl(_text(args.judgements), review.id) if args.judgements else []
    files = {
        "judgements.csv": exports.to_csv(review, rows),
        "judgements.jsonl": exports.to_jsonl(review, rows),
        "review.html": exports.to_html(review, rows),
        **{
            f"comparator-{number}.json": exports.to_comparator(review, rows, number)
            for number in review.about.others
        },
    }
    for name, text in files.items():
        write_text(args.out / name, text)
        print(args.out / name)
    return 0


def _merge(args: argparse.Namespace) -> int:
    from mars_runtime.review import exports
    from mars_runtime.review.sets import ReviewSet

    review = ReviewSet.open(args.set)
    text, num_conflicts = exports.merge(review, [_text(path) for path in args.files])
    write_text(args.out, text)
    print(f"{args.out}: {num_conflicts} conflicts, of which both sides are kept.")
    return 0


def _pack(args: argparse.Namespace) -> int:
    from mars_runtime.review.sets import ReviewSet

    review = ReviewSet.open(args.set)
    if missing := review.missing():
        raise OutputError(f"{len(missing)} answers are missing: run `review make` again first.")
    review.pack(args.out)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB")
    return 0
