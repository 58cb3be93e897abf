"""``python -m mars_runtime COMMAND``: import the command's module and run it.

Only the chosen command is imported, so a command neither loads nor depends on another one's
packages. A command is a module with ``add_parser(subparsers)`` and ``run(args) -> exit code``. Exit
codes: 0 done, 1 failed, 2 invalid arguments, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TextIO

from mars_runtime.network import repair_network
from mars_runtime.outputs import in_words

ABOUT = "MARS: several tokens per forward pass from an ordinary autoregressive checkpoint."
COMMANDS = {
    "generate": ("mars_runtime.cli_generate", "decode a prompt and stream the text"),
    "fetch": ("mars_runtime.model.fetch", "download a checkpoint"),
    "serve": ("mars_runtime.serving.cli", "serve an OpenAI-compatible endpoint"),
    "page": ("mars_runtime.cli_page", "serve the page"),
    "review": ("mars_runtime.review.cli", "create sets of answers and merge and export judgements"),
    "train": ("mars_runtime.lab.training.cli", "train a bundled checkpoint"),
    "ablate": ("mars_runtime.lab.ablation.cli", "train variants of the method and compare them"),
    "distill": ("mars_runtime.lab.training.distill.cli", "write the base's answers to train on"),
    "evaluate": (
        "mars_runtime.lab.evaluation.cli",
        "measure accuracy and tokens per forward pass over τ and B",
    ),
    "verify": (
        "mars_runtime.lab.verification.cli",
        "check that a checkpoint keeps its promises, such as lossless text",
    ),
    "benchmark": (
        "mars_runtime.lab.benchmark.cli",
        "compare tokens per second with other software",
    ),
    "profile": (
        "mars_runtime.lab.benchmark.profile",
        "measure where the time of a forward pass goes",
    ),
    "lm_eval": ("mars_runtime.lab.harness.cli", "run lm-evaluation-harness with a checkpoint"),
    "lm_eval_table": (
        "mars_runtime.lab.harness.table",
        "compare results of lm-eval with the paper's",
    ),
    "length": ("mars_runtime.lab.benchmark.length", "measure speed along a growing text"),
    "tables": (
        "mars_runtime.lab.documents",
        "write the tables of the documents from their results",
    ),
}


EXTRAS = {
    "app": ("gradio", "plotly", "cryptography"),
    "serve": ("fastapi", "starlette", "uvicorn", "prometheus_client"),
    "lab": ("transformers", "accelerate"),
    "ray": ("ray",),
}
"""Modules by the extra in pyproject.toml that installs them."""


class SentenceParser(argparse.ArgumentParser):
    """A parser that reports errors as one sentence on standard error."""

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:].rstrip(".")
        self.exit(2, f"{sentence}: see {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in ``arguments`` (default: of the process); return the exit code."""
    _open_streams()
    try:
        for sentence in repair_network():
            print(sentence, file=sys.stderr)
        try:
            return _run(sys.argv[1:] if arguments is None else list(arguments))
        finally:  # --help also leaves output to be flushed
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        return 1
    except OSError as error:
        with suppress(OSError):  # standard error may be full as well
            print(in_words(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        for stream in (sys.stdout, sys.stderr):
            _be_quiet_if_full(stream)


def _open_streams() -> None:
    """Reopen closed standard streams on /dev/null, and ignore encoding errors of a narrow terminal.

    Otherwise the next opened file would reuse the descriptor of a closed stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _be_quiet_if_full(stream: TextIO) -> None:
    """Redirect a stream that cannot be written to /dev/null, for Python's flush at exit as well."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):  # not backed by a file
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: list[str]) -> int:
    name = "mars" if Path(sys.argv[0]).stem == "mars" else "python -m mars_runtime"
    parser = SentenceParser(prog=name, description=ABOUT)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = arguments[0] if arguments else ""
    module: ModuleType | None = None
    for name, (path, what) in COMMANDS.items():
        if name != chosen:
            subparsers.add_parser(name, help=what)
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
    """Return a sentence about a module that a command needs, with the extra that brings it."""
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
