"""Validate the arguments of the lab's commands, and report user errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from mars_runtime.files.outputs import OutputError
from mars_runtime.settings import SettingsError

HIDDEN = {"command", "out", "transformers", "llama_cpp", "openvino", "onnxruntime"}
"""Paths on one machine, which are not stored with a result."""


class UsageError(ValueError): ...


def run_or_report(work: Callable[[], int]) -> int:
    """Return the exit code of ``work``; 2 and a message on a user error."""
    from mars_runtime.errors import DecodeError
    from mars_runtime.model.config import CheckpointError

    try:
        return work()
    except (SettingsError, UsageError, CheckpointError, DecodeError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2


def at_least_one(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(args, name)
        values = value if isinstance(value, list | tuple) else [value]
        if any(number is not None and number < 1 for number in values):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} must be at least 1, got {min(values)}.")


def arguments_of(args: argparse.Namespace) -> dict[str, Any]:
    return {k: v for k, v in vars(args).items() if k not in HIDDEN and not callable(v)}
