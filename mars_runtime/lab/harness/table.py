"""``python -m mars_runtime lm_eval_table FOLDER …``: lm-eval's results in the paper's form.

Writes ``--out`` as JSON and, beside it, the same as Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from mars_runtime.lab.harness.results import PAPER, ResultsError, document, read_results, tables
from mars_runtime.outputs import OutputError, check_file, path_of, write_text


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``lm_eval_table`` command."""
    parser = subparsers.add_parser("lm_eval_table", help="lm-eval's results beside the paper's")
    parser.add_argument("results", nargs="+", type=Path, help="what --output_path named")
    parser.add_argument("--out", type=path_of, default=Path("runs/lm_eval.json"))


def run(args: argparse.Namespace) -> int:
    """Read, print, write. Returns the exit code."""
    try:
        check_file(args.out)
        cells, origin = read_results(args.results)
        found = tables(cells, json.loads(PAPER.read_text(encoding="utf-8")))
        write_text(args.out, json.dumps(document(cells, origin), ensure_ascii=False, indent=1))
        markdown = "\n\n".join(table.to_markdown() for table in found)
        write_text(args.out.with_suffix(".md"), markdown + "\n")
    except (ResultsError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    console = Console()
    for table in found:
        console.print(table.to_rich(), crop=False)
    console.print(f"Written to {args.out}", markup=False)
    return 0
