"""``python -m mars_runtime lm_eval …``: run lm-eval, with ``mars`` as an available model.

This command is needed for tasks that are part of lm-eval. The task files in ``tasks/`` also work
with ``python -m lm_eval``, because they register the model (``documents.py``).
"""

from __future__ import annotations

import argparse
import sys

NEEDED = "lm-eval is not installed. Run pip install -r requirements-lm-eval.txt."


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the ``lm_eval`` command, which passes all arguments, --help included, to lm-eval."""
    parser = subparsers.add_parser(
        "lm_eval",
        help="run lm-evaluation-harness with a checkpoint",
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("arguments", nargs="*")


def run(args: argparse.Namespace) -> int:
    try:
        from lm_eval.__main__ import cli_evaluate

        from mars_runtime.lab.harness import documents
    except ImportError:
        print(NEEDED, file=sys.stderr)
        return 0 if args.arguments == ["--help"] else 1
    assert documents.NAME == "mars"
    sys.argv = ["lm_eval", *args.arguments]
    cli_evaluate()
    return 0
