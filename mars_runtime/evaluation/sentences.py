"""What a command says when it cannot go on: one sentence for people, and an exit code.

Mistakes of the user are told apart from faults of the program by their type alone.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from mars_runtime.evaluation.prompts import PromptError
from mars_runtime.settings import SettingsError


def run_or_say(work: Callable[[], int], console: Console) -> int:
    """The exit code of ``work``, or 2 and one sentence for a mistake in what was asked."""
    from mars_runtime.acceptance import DecodeError
    from mars_runtime.model.config import CheckpointError

    try:
        return work()
    except (SettingsError, PromptError, CheckpointError, DecodeError) as error:
        console.print(str(error), style="red", markup=False)
        return 2
