"""``python -m mars_runtime review``: create sets of answers; merge and export judgements.

review make prompts.jsonl --methods ar tau=0.8 lossless --out set/
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
from mars_runtime.review.methods import read_methods
from mars_runtime.review.prompts import (
    Item,
    PromptError,
    bundled,
    check_format,
    decoded,
    read_prompts,
    with_system,
)
from mars_runtime.settings import SettingsError
from mars_runtime.text import TextError, check_system

if TYPE_CHECKING:
    from mars_runtime.review.making import Decoder

MAX_TOKENS = 128


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "review", help="create sets of answers; merge and export judgements"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    making = verbs.add_parser(
        "make",
        help="decode prompts with several methods; an interrupted run continues where it stopped",
    )
    add = making.add_argument
    add(
        "prompts",
        help="a file (text, CSV, TSV or JSON), or a built-in set: study, requests or a task family",
    )
    add(
        "--methods",
        "--ways",
        dest="methods",
        nargs="+",
        required=True,
        help="methods to compare, such as ar tau=0.8 lossless tau=0.5,B=8",
    )
    add(
        "--reference",
        default="",
        help="the method that the others are compared with (default: the first)",
    )
    add("--out", type=path_of, required=True, help="folder of the set")
    add("--name", default="", help="name of the set (default: the name of its folder)")
    add(
        "--system",
        default="",
        help="system prompt for prompts without one (default: the checkpoint's own)",
    )
    add(
        "--checkpoint",
        default="mars-smollm2",
        help="name or folder of the checkpoint (%(default)s)",
    )
    add(
        "--max-new-tokens",
        type=int,
        default=MAX_TOKENS,
        help="maximum number of tokens in an answer (%(default)s)",
    )
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="auto, fp32, bf16 or int8 (%(default)s)")
    making.set_defaults(work=_make)
    showing = verbs.add_parser("show", help="print the automatic checks of each method as JSON")
    showing.add_argument("set", type=path_of, help="folder or archive of the set")
    showing.add_argument("--out", type=path_of, help="file to write (default: standard output)")
    showing.set_defaults(work=_show)
    exporting = verbs.add_parser(
        "export", help="write CSV, JSON Lines, HTML and LLM Comparator files"
    )
    exporting.add_argument("set", type=path_of, help="folder or archive of the set")
    exporting.add_argument(
        "--judgements",
        type=Path,
        help="file of judgements; if omitted, only automatic checks are exported",
    )
    exporting.add_argument("--out", type=path_of, required=True, help="folder to write")
    exporting.set_defaults(work=_export)
    merging = verbs.add_parser("merge", help="merge the files of several reviewers")
    merging.add_argument("set", type=path_of, help="folder or archive of the set")
    merging.add_argument("files", nargs="+", type=Path, help="files of judgements")
    merging.add_argument("--out", type=path_of, required=True, help="file to write")
    merging.set_defaults(work=_merge)
    packing = verbs.add_parser("pack", help="pack a set into one archive")
    packing.add_argument("set", type=path_of, help="a folder")
    packing.add_argument("--out", type=path_of, required=True, help="archive to write")
    packing.set_defaults(work=_pack)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code; 2 after an error that the user can correct."""
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.review.judgements import JudgementError
    from mars_runtime.review.sets import SetError

    user_errors = (
        *(PromptError, SettingsError, SetError, JudgementError),
        *(OutputError, CheckpointError, TextError),
    )
    work: Callable[[argparse.Namespace], int] = args.work
    try:
        return work(args)
    except user_errors as error:
        print(error, file=sys.stderr)
        return 2


def _make(args: argparse.Namespace) -> int:
    items = with_system(_items(args.prompts), check_system(args.system))
    methods = read_methods(args.methods, args.checkpoint, max_new_tokens=args.max_new_tokens)
    names = [method.name for method in methods]
    if args.reference and args.reference not in names:
        raise SettingsError(
            f"The reference must be one of the methods {', '.join(names)}, got {args.reference}."
        )
    from rich.console import Console

    from mars_runtime.review.making import begin, make
    from mars_runtime.terminal import progress_bars

    console = Console(stderr=True)
    with ExitStack() as stack:
        decoders = DecoderCache(args.device, args.dtype, stack)
        reference = names.index(args.reference) if args.reference else 0
        name = args.name or args.out.name
        review = begin(args.out, name, items, methods, decoders, reference)
        stack.enter_context(review.only_writer())
        with progress_bars(console) as bars:
            bar = bars.add_task("answers")
            for progress in make(review, decoders):
                bars.update(bar, completed=progress.num_done, total=progress.num_all)
    for sentence in progress.refused:
        print(sentence, file=sys.stderr)
    print(f"{args.out} has {progress.num_done} of {progress.num_all} answers.")
    return 1 if progress.refused else 0


class DecoderCache:
    """Loads a checkpoint and its engine on first use; ``stack`` closes the engines."""

    def __init__(self, device: str, dtype: str, stack: ExitStack) -> None:
        self._device, self._dtype, self._stack = device, dtype, stack
        self._decoders: dict[str, Decoder] = {}

    def __call__(self, name: str) -> Decoder:
        """Return the decoder of a checkpoint, loaded if necessary. Raises CheckpointError."""
        from mars_runtime.engine import Engine
        from mars_runtime.engine.backend import CheckpointBackend
        from mars_runtime.model.load import load_checkpoint
        from mars_runtime.review.making import AT_ONCE, Decoder

        if name not in self._decoders:
            checkpoint = load_checkpoint(name, device=self._device, dtype=self._dtype)
            backend = CheckpointBackend(checkpoint, keeps=False)
            engine = self._stack.enter_context(Engine(backend, max_runs=AT_ONCE))
            self._decoders[name] = Decoder.of(engine, checkpoint)
        return self._decoders[name]


def _items(source: str) -> list[Item]:
    """Return the prompts of a file, or the bundled prompts with this name.

    Prints a message for each line of the file that is skipped. Raises PromptError.
    """
    path = Path(source)
    if not path.is_file():
        return bundled(source)
    prompts = read_prompts(_text(path), name=path.name)
    for fault in prompts.faults:
        print(fault, file=sys.stderr)
    return prompts.items


def _text(path: Path) -> str:
    """Read a text file. Raises PromptError if the file cannot be read."""
    content = b""
    try:
        content = path.read_bytes()
        return decoded(content)
    except UnicodeDecodeError as error:
        check_format(content[:8].decode("latin-1"), str(path))
        raise PromptError(f"{path} is not UTF-8 text. Save it as UTF-8.") from error
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
    print(f"{args.out}: {num_conflicts} conflicts; both judgements are kept.")
    return 0


def _pack(args: argparse.Namespace) -> int:
    from mars_runtime.review.sets import ReviewSet

    review = ReviewSet.open(args.set)
    if missing := review.missing():
        raise OutputError(f"{len(missing)} answers are missing. Run `review make` again first.")
    review.pack(args.out)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB")
    return 0
