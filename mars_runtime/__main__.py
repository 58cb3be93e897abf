"""``python -m mars_runtime COMMAND``: import the module of the command and run it.

A command needs only its own packages. Its module defines ``add_parser(subparsers)`` and
``run(args)``, which returns the exit code: 0 success, 1 failure, 2 invalid arguments, 130
interrupted.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TextIO

from mars_runtime.files.outputs import in_words
from mars_runtime.system.network import prepare_network

ABOUT = "MARS: several tokens per forward pass from an ordinary autoregressive checkpoint."
COMMANDS = {
    "generate": ("mars_runtime.commands.generate", "decode a prompt and stream the text"),
    "fetch": ("mars_runtime.model.fetch", "download a checkpoint"),
    "serve": ("mars_runtime.serving.cli", "serve an OpenAI-compatible endpoint"),
    "page": ("mars_runtime.commands.page", "serve the page"),
    "review": ("mars_runtime.review.cli", "decode prompts with several methods into one file"),
    "train": ("mars_runtime.lab.training.cli", "train a bundled checkpoint"),
    "distill": ("mars_runtime.lab.training.distill.cli", "write the base's answers to train on"),
    "evaluate": (
        "mars_runtime.lab.evaluation.cli",
        "measure accuracy and tokens per forward pass of several methods",
    ),
    "verify": ("mars_runtime.lab.verification", "check that lossless decoding emits AR's tokens"),
    "benchmark": (
        "mars_runtime.lab.benchmark.cli",
        "compare tokens per second with other software",
    ),
}


EXTRAS = {
    "app": ("gradio", "plotly"),
    "serve": ("fastapi", "starlette", "uvicorn", "prometheus_client"),
    "lab": ("transformers", "accelerate"),
    "ray": ("ray",),
}
"""Name of an extra in pyproject.toml -> modules that it installs."""


class SentenceParser(argparse.ArgumentParser):
    """An argument parser that prints errors as one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:].rstrip(".")
        self.exit(2, f"{sentence}: see {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    _open_streams()
    try:
        if fault := prepare_network():
            print(fault, file=sys.stderr)
            return 2
        try:
            return _run(sys.argv[1:] if arguments is None else list(arguments))
        finally:  # --help exits by an exception, and its output must be flushed as well
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, for example `head`
        return 1
    except OSError as error:
        with suppress(OSError):  # standard error may be unwritable as well
            print(in_words(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        for stream in (sys.stdout, sys.stderr):
            _discard_if_unwritable(stream)


def _open_streams() -> None:
    """Reopen closed standard streams on the null device; the next opened file would otherwise reuse
    their descriptor. Redirected output is UTF-8 unless PYTHONIOENCODING is set. A console gets
    escapes for what its encoding lacks.
    """
    codecs.register_error("mars", _Escape())
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            is_utf8 = codecs.lookup(stream.encoding).name == "utf-8"
            is_chosen = is_utf8 or stream.isatty() or "PYTHONIOENCODING" in os.environ
            if not is_chosen and name == "stdout":
                print(f"Output is written as UTF-8, not {stream.encoding}.", file=sys.stderr)
            stream.reconfigure(encoding=None if is_chosen else "utf-8", errors="mars")


class _Escape:
    """Error handler of a codec that writes escapes such as \\u2192; warns at the first one."""

    has_warned = False

    def __call__(self, error: UnicodeError) -> tuple[str | bytes, int]:
        if not self.has_warned and isinstance(error, UnicodeEncodeError):
            self.has_warned = True
            print(
                "Characters that the encoding of this output lacks are written as escapes: set "
                "PYTHONIOENCODING=utf-8 to get them.",
                file=sys.stderr,
            )
        return codecs.backslashreplace_errors(error)


def _discard_if_unwritable(stream: TextIO) -> None:
    """Redirect a stream that cannot be flushed to the null device, so that Python's own flush at
    exit does not fail with a traceback.
    """
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):  # the stream has no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: list[str]) -> int:
    name = "mars" if Path(sys.argv[0]).stem == "mars" else "python -m mars_runtime"
    parser = SentenceParser(prog=name, description=ABOUT)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = arguments[0] if arguments else ""
    module: ModuleType | None = None
    for name, (path, description) in COMMANDS.items():
        if name != chosen:
            subparsers.add_parser(name, help=description)
            continue
        try:
            module = importlib.import_module(path)
        except ImportError as error:
            parser.exit(1, _missing(name, error))
        module.add_parser(subparsers)
    parsed = parser.parse_args(arguments)
    assert module is not None, "the parser accepts only known commands"
    try:
        return int(module.run(parsed))
    except ModuleNotFoundError as error:
        parser.exit(1, _missing(chosen, error))


def _missing(command: str, error: ImportError) -> str:
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return (
                f"The command {command} needs {module}, which is not installed here. Run pip "
                f"install '.[{extra}]' in a clone of the project.\n"
            )
    return f"The command {command} needs a module that is missing: {error}.\n"


if __name__ == "__main__":
    sys.exit(main())
