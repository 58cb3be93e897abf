"""``python -m mars_runtime review``: decode prompts with several methods into one file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rich.console import Console

from mars_runtime.display.terminal import progress_bars
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.errors import MarsError
from mars_runtime.files.outputs import OutputError, check_file, only_writer, path_of
from mars_runtime.model.files import fingerprint
from mars_runtime.review.methods import ReviewMethod, read_methods
from mars_runtime.review.prompts import Item, prompts_of
from mars_runtime.review.sets import MAX_NAME, SetError, SetHeader, answer_of, item_line, read_set
from mars_runtime.runs import folds
from mars_runtime.runs.events import FINAL, End
from mars_runtime.runs.trace import Trace
from mars_runtime.system.provenance import provenance
from mars_runtime.text import Context, TextError, check_system

if TYPE_CHECKING:
    from mars_runtime.engine import Engine
    from mars_runtime.model.load import Checkpoint

MAX_TOKENS = 128
MAX_RUNS = 12


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "review",
        help="decode prompts with several methods into one file, to read in the Review tab",
        description="An interrupted command continues where it stopped. See docs/review.md.",
    )
    add = parser.add_argument
    add("prompts", help="a text, CSV, TSV or JSONL file, or a bundled set: study or a task family")
    methods = "methods to compare, such as ar lossless,tau=0.3,B=4 tau=0.8,B=4"
    add("--methods", nargs="+", required=True, help=methods)
    add("--out", type=path_of, required=True, help="the set, a file of JSON Lines")
    add("--name", default="", help="name of the set (default: the name of its file)")
    add("--system", default="", help="system prompt (default: the checkpoint's own)")
    add("--checkpoint", default="mars-smollm2", help="name or folder (%(default)s)")
    add("--max-new-tokens", type=int, default=MAX_TOKENS, help="tokens of an answer (%(default)s)")
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="auto, fp32, bf16 or int8 (%(default)s)")


def run(args: argparse.Namespace) -> int:
    try:
        system = check_system(args.system)
        items = [replace(item, system=item.system or system) for item in prompts_of(args.prompts)]
        methods = read_methods(args.methods, args.checkpoint, max_new_tokens=args.max_new_tokens)
        check_file(args.out)
        with ExitStack() as stack:
            return _make(args, items, methods, Decoders(args.device, args.dtype, stack), stack)
    except MarsError as error:
        print(error, file=sys.stderr)
        return 2


def _make(
    args: argparse.Namespace,
    items: Sequence[Item],
    methods: Sequence[ReviewMethod],
    decoders: Decoders,
    stack: ExitStack,
) -> int:
    try:
        args.out.touch()
        stack.enter_context(only_writer(args.out))
        known = {item.id: item for item in _begun(args, methods, decoders)}
        for item in items:
            if (other := known.get(item.id)) and (other.prompt, other.before) != (
                item.prompt,
                item.before,
            ):
                raise SetError(f"The set has another prompt {item.id!r}. Name another file.")
        left = [item for item in items if item.id not in known]
        num_refused = 0
        with (
            args.out.open("a", encoding="utf-8") as file,
            progress_bars(Console(stderr=True)) as bars,
        ):
            bar = bars.add_task("prompts", total=len(items), completed=len(items) - len(left))
            for item in left:
                answers, faults = decoders.answers(item, methods)
                for fault in faults:
                    num_refused += 1
                    print(f"Prompt {item.id}: {fault}", file=sys.stderr)
                file.write(item_line(item, answers))
                file.flush()
                bars.advance(bar)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{args.out} cannot be written ({reason}). Free some space.") from error
    print(f"{args.out} has {len(items)} prompts with {len(methods)} methods.")
    return 1 if num_refused else 0


def _begun(
    args: argparse.Namespace, methods: Sequence[ReviewMethod], decoders: Decoders
) -> tuple[Item, ...]:
    """Write the header of a new set, or cut half a line. Return the prompts that the set has."""
    path: Path = args.out
    names = dict.fromkeys(method.checkpoint for method in methods)
    weights = {name: decoders.weights(name) for name in names}
    if not path.stat().st_size:
        made = {**provenance(), "weights": weights}
        name = (args.name or path.stem)[:MAX_NAME]
        header = SetHeader(uuid4().hex[:16], name, tuple(methods), made)
        path.write_text(header.line(), "utf-8")
        return ()
    found = read_set(path)
    if found.header.methods != tuple(methods) or found.header.made.get("weights") != weights:
        raise SetError(f"{path} has answers of other methods or weights. Name another file.")
    os.truncate(path, found.num_bytes)
    return found.items


class Decoders:
    def __init__(self, device: str, dtype: str, stack: ExitStack) -> None:
        self._device, self._dtype, self._stack = device, dtype, stack
        self._loaded: dict[str, tuple[Checkpoint, Engine]] = {}

    def _get(self, name: str) -> tuple[Checkpoint, Engine]:
        from mars_runtime.engine import Engine
        from mars_runtime.engine.backend import CheckpointBackend
        from mars_runtime.model.load import load_checkpoint

        if name not in self._loaded:
            checkpoint = load_checkpoint(name, device=self._device, dtype=self._dtype)
            engine = Engine(CheckpointBackend(checkpoint, keeps=False), max_runs=MAX_RUNS)
            self._loaded[name] = checkpoint, self._stack.enter_context(engine)
        return self._loaded[name]

    def weights(self, name: str) -> str:
        return fingerprint(self._get(name)[0].weight_files)

    def answers(
        self, item: Item, methods: Sequence[ReviewMethod]
    ) -> tuple[list[dict[str, Any] | None], list[str]]:
        """Return an answer of each method, None for a prompt that it refuses, and why. Decode one
        after the other, so that no method affects another's answer and times."""
        traces: list[Trace | None] = []
        faults: list[str] = []
        plain: str | None = None
        for method in methods:
            trace: Trace | None = None
            try:
                trace = self._trace(item, method)
            except (RequestError, TextError) as error:
                faults.append(str(error))
            traces.append(trace)
            if trace and method.settings and method.settings.facts.is_reference:
                plain = folds.text(trace) if plain is None else plain
        return [answer_of(trace, item, plain) if trace else None for trace in traces], faults

    def _trace(self, item: Item, method: ReviewMethod) -> Trace:
        checkpoint, engine = self._get(method.checkpoint)
        tokenizer, settings = checkpoint.tokenizer, method.settings
        assert settings is not None, "methods of the command line have settings"
        request = Request(
            tokenizer.encode_prompt(item.prompt, before=item.before),
            settings,
            is_checked="lossless" in settings.facts.obeys and not settings.is_verified,
            reuses=False,
        )
        events = list(engine.submit(request, is_alone=True))
        end = events[-1]
        if not isinstance(end, End) or end.reason not in FINAL:
            raise MarsError(f"Prompt {item.id} has no answer: the run ended early.")
        header = make_header(
            checkpoint,
            item.prompt,
            request,
            task=asdict(item.task) if item.task else None,
            name=method.name,
            context=Context(system=tokenizer.system_in_force(item.system)),
        )
        return Trace.of(header, events, tokenizer.token_bytes)
