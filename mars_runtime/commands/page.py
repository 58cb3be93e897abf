"""``mars page``: start the page. Accepts the options of ``app.py``."""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import sys

from mars_runtime.files.paths import PAGE, SOURCE


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("page", prefix_chars="\0", add_help=False)
    parser.add_argument("arguments", nargs="*", help="options of app.py")


def run(args: argparse.Namespace) -> int:
    """Serve the page until interrupted. Raises ModuleNotFoundError if gradio is missing."""
    if importlib.util.find_spec("gradio") is None:
        raise ModuleNotFoundError(name="gradio")
    sys.argv = ["mars page", *args.arguments]
    sys.path.insert(0, str(SOURCE))
    runpy.run_path(str(PAGE), run_name="__main__")
    return 0
