"""``python -m mars_runtime tables``: writes the tables of the documents anew from their results.

A table stands between two comments, of which the first names its view and its file:

    <!-- python -m mars_runtime tables: chat_ratios of assets/results/chat_benchmark.json -->
    <!-- end -->

What stands outside of them is left alone. Measures nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import FunctionType

from mars_runtime.lab.documents import gpu, views
from mars_runtime.lab.tables import Table
from mars_runtime.outputs import OutputError, write_text

ROOT = Path(__file__).parents[3]
MARKED = re.compile(
    r"(?P<begin><!-- python -m mars_runtime tables: (?P<view>\w+) of (?P<file>\S+) -->\n)"
    r"(?P<table>.*?)(?P<end><!-- end -->)",
    re.DOTALL,
)
VIEWS: dict[str, Callable[[views.Content], Table]] = {
    name: view
    for module in (views, gpu)
    for name, view in vars(module).items()
    if isinstance(view, FunctionType) and not name.startswith("_")
    if list(signature(view).parameters) == ["content"]
}
"""Every public function of what a result holds."""


PENDING = "Not measured yet."
"""Shown in place of a GPU table until its result exists."""


class DocumentError(ValueError):
    """A marker that names no view or no result that it can show; one sentence."""


def documents(root: Path = ROOT) -> list[Path]:
    """Everything that may show results: README, docs, model cards."""
    cards = sorted((root / "checkpoints").rglob("README.md"))
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), *cards]


def written(text: str, root: Path = ROOT) -> str:
    """A document with every marked table as its file has it. Raises DocumentError."""

    def anew(found: re.Match[str]) -> str:
        table = _table(found["view"], found["file"], root)
        return f"{found['begin']}{table}\n{found['end']}"

    return MARKED.sub(anew, text)


def _table(view: str, file: str, root: Path) -> str:
    if view not in VIEWS:
        raise DocumentError(f"There is no view {view!r}: choose one of {', '.join(VIEWS)}.")
    if Path(file).name.startswith(gpu.PREFIX) and not (root / file).exists():
        return PENDING
    try:
        content = json.loads((root / file).read_text(encoding="utf-8"))
        return VIEWS[view](content).rows_to_markdown()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DocumentError(f"{file} holds nothing that {view} can show ({error!r}).") from error


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``tables`` command."""
    subparsers.add_parser("tables", help="write the tables of the documents from their results")


def run(args: argparse.Namespace) -> int:
    """Write anew what differs. Returns the exit code."""
    try:
        for path in documents():
            before = path.read_text(encoding="utf-8")
            after = written(before)
            if after != before:
                write_text(path, after)
                print(f"Written anew: {path.relative_to(ROOT)}")
    except (DocumentError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
