"""``python -m mars_runtime generate``: decode a prompt, stream the text and print the speed.

The engine's worker thread decodes and measures the time. The main thread polls it 20 times a second
and prints, so measured times do not include printing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mars_runtime.runs.events import FINAL, End, Event
from mars_runtime.settings import (
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    SettingsError,
    parse_settings,
    recommended,
)
from mars_runtime.text import Context, TextError, check_system

if TYPE_CHECKING:
    from mars_runtime.engine import Run
    from mars_runtime.model.load import Checkpoint
    from mars_runtime.runs.trace import Header

DEFAULT_CHECKPOINT = "mars-tiny"
POLL_SECONDS = 0.05
DEADLINE = 3600.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("generate", help="decode a prompt and stream the text")
    add = parser.add_argument
    add("--prompt", required=True, help="the prompt")
    add("--system", default="", help="system prompt (default: the checkpoint's own)")
    add(
        "--checkpoint",
        default=DEFAULT_CHECKPOINT,
        help="name or folder of the checkpoint (%(default)s)",
    )
    for name in SETTINGS:
        if name != "logit_bias":
            _add_setting(parser, name)
    add("--device", default="auto", help="auto, cpu or cuda (%(default)s)")
    add("--dtype", default="auto", help="auto, fp32, bf16 or int8 (%(default)s)")
    add("--json", action="store_true", help="print the trace, one JSON object per line")


def _add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    schema, default = SETTINGS[name], getattr(RECOMMENDED, name)
    options: dict[str, Any] = {"metavar": "|".join(schema.get("enum", ())) or None}
    if isinstance(default, bool):
        options, default = {"action": argparse.BooleanOptionalAction}, "on" if default else "off"
    says = schema["description"] + (f" ({default})" if default != "" else "")
    parser.add_argument(f"--{name.replace('_', '-')}", help=says, **options)


def settings_of(args: argparse.Namespace) -> DecodeSettings:
    values = vars(args)
    chosen = {name: str(values[name]) for name in SETTINGS if values.get(name) is not None}
    return recommended(parse_settings(chosen))


def run(args: argparse.Namespace) -> int:
    try:
        settings = settings_of(args)
        if not args.prompt.strip():
            raise SettingsError("The prompt is empty. Type one.")
        check_system(args.system)
    except (SettingsError, TextError) as error:
        return _report(error)
    from mars_runtime.model.config import CheckpointError, memory_for

    try:
        with memory_for(args.checkpoint):  # also covers the import of torch
            return _decode(args, settings)
    except (CheckpointError, TextError) as error:
        return _report(error)


def _decode(args: argparse.Namespace, settings: DecodeSettings) -> int:
    # These imports are slow, so the caller validates the arguments before them.
    from rich.console import Console
    from rich.markup import escape

    from mars_runtime.engine import RequestError
    from mars_runtime.model.load import load_checkpoint

    # The status is drawn in a terminal only, and removed once the checkpoint is loaded.
    with Console(stderr=True).status("", spinner="line") as status:
        checkpoint = load_checkpoint(
            args.checkpoint,
            device=args.device,
            dtype=args.dtype,
            progress=lambda sentence: status.update(escape(sentence)),
        )
    try:
        return _generate(checkpoint, args.prompt, args.system, settings, is_json=args.json)
    except RequestError as error:
        return _report(error)


def _generate(
    checkpoint: Checkpoint, prompt: str, system: str, settings: DecodeSettings, *, is_json: bool
) -> int:
    from mars_runtime.engine import Engine, Request
    from mars_runtime.engine.backend import with_draft
    from mars_runtime.engine.header import make_header

    settings = with_draft(settings, checkpoint.name)
    ids = checkpoint.tokenizer.encode_prompt(prompt, system=system)
    request = Request(ids, settings, DEADLINE)
    if "lossless" in settings.facts.obeys and settings.num_proposals > checkpoint.block_size:
        trained = f"{checkpoint.name} was trained with B = {checkpoint.block_size}"
        print(f"Note: {trained}; a larger B may give worse text.", file=sys.stderr)
    with Engine(checkpoint, max_runs=1, max_waiting=0) as engine:
        # Import and compute everything before the run, to avoid competing with it for the GIL.
        context = Context(system=checkpoint.tokenizer.system_in_force(system))
        header = make_header(checkpoint, prompt, request, costs=engine.costs(), context=context)
        output = (JsonOutput if is_json else TextOutput)(header, checkpoint.tokenizer.token_bytes)
        current = engine.submit(request)
        for events in follow(current):
            output.show(events)
    output.finish()
    end = current.events_since(0)[-1]
    assert isinstance(end, End), "a finished run has an end"
    if end.message:
        print(end.message, file=sys.stderr)
    return 0 if end.reason in FINAL else 1


def follow(current: Run) -> Iterator[tuple[Event, ...]]:
    """Yield new events of a run every POLL_SECONDS until it ends. Polling avoids a switch of
    threads after each event, which would slow decoding.
    """
    num_read, is_over = 0, False
    while not is_over:
        is_over = current.wait(POLL_SECONDS)
        events = current.events_since(num_read)
        num_read += len(events)
        yield events


class JsonOutput:
    def __init__(self, header: Header, token_bytes: Callable[[int], bytes]) -> None:
        from mars_runtime.runs.trace import TraceWriter

        self._writer = TraceWriter(header, token_bytes)
        print(self._writer.header_line(), flush=True)

    def show(self, events: Sequence[Event]) -> None:
        if events:
            print("\n".join(map(self._writer.line, events)), flush=True)

    def finish(self) -> None:
        """Do nothing: the last event ends the trace."""


class TextOutput:
    def __init__(self, header: Header, token_bytes: Callable[[int], bytes]) -> None:
        from rich.console import Console

        from mars_runtime.display.terminal import TextView

        self._header = header
        self._view = TextView(Console(highlight=False), token_bytes)
        self._events: list[Event] = []

    def show(self, events: Sequence[Event]) -> None:
        self._events += events
        self._view.show(events)

    def finish(self) -> None:
        from mars_runtime.display.terminal import circumstances, figures

        self._view.finish()
        print(f"\n{figures(self._events)}\n{circumstances(self._header)}", flush=True)


def _report(error: Exception) -> int:
    print(error, file=sys.stderr)
    return 2
