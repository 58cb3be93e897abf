"""``python -m mars_runtime lm_eval …``: lm-eval's command line with the model ``mars`` registered.

Only the harness's own tasks need it: the task files in ``tasks/`` register the model themselves
(``documents.py``).
"""

from __future__ import annotations

import argparse
import sys

NEEDED = "lm-eval is not installed here. Run pip install -r requirements-lm-eval.txt."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``lm_eval`` command; all its arguments, --help included, are lm-eval's."""
    parser = subparsers.add_parser(
        "lm_eval",
        help="run lm-evaluation-harness with a checkpoint",
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("given", nargs="*")


def run(args: argparse.Namespace) -> int:
    """Run lm-eval; return the exit code."""
    try:
        from lm_eval.__main__ import cli_evaluate

        from mars_runtime.lab.harness import documents
    except ImportError:
        print(NEEDED, file=sys.stderr)
        return 0 if args.given == ["--help"] else 1
    assert documents.NAME == "mars"
    sys.argv = ["lm_eval", *args.given]
    cli_evaluate()
    return 0
