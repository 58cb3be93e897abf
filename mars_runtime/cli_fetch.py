"""``python -m mars_runtime fetch``: have the files of a checkpoint on this machine.

Knows the registry and a progress bar; knows no model.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mars_runtime.model.registry import Entry

DEFAULT = "mars-smollm2"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to ``subparsers``."""
    parser = subparsers.add_parser(
        "fetch", help="fetch a checkpoint", description="Fetch the files of a checkpoint."
    )
    parser.add_argument(
        "name", nargs="?", default=DEFAULT, help="a name of the registry (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Fetch, and say where the files are; the exit code."""
    from mars_runtime.model.config import CheckpointError
    from mars_runtime.model.fetch import is_intact
    from mars_runtime.model.registry import find, registry

    try:
        entry = registry().get(args.name)
        if entry is None:
            raise CheckpointError(f"Choose one of {', '.join(registry())}, not {args.name!r}.")
        if entry.path is not None:
            print(f"{entry.name} comes with this repository: nothing needs fetching.")
        elif entry.gguf is None:
            print(f"{entry.name} is in {find(entry.name)[1]}.")
        elif is_intact(entry.gguf):
            print(f"{entry.name} is already there: {entry.gguf.path}.")
        else:
            print(f"{entry.name} is there now: {_fetch(entry)}.")
    except CheckpointError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _fetch(entry: Entry) -> Path:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from mars_runtime.model.fetch import fetch

    columns = (TextColumn(entry.name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(entry.name, total=None)
        return fetch(entry, lambda done, total: bar.update(task, completed=done, total=total))
