"""What the commands of the lab share: how they fail in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mars_runtime.lab.evaluation.prompts import PromptError
from mars_runtime.outputs import OutputError
from mars_runtime.settings import SettingsError


def run_or_say(work: Callable[[], int]) -> int:
    """The exit code of ``work``, or 2 and one sentence on standard error for a mistake in what was
    asked, which its type tells from a fault of the program."""
    from mars_runtime.acceptance import DecodeError
    from mars_runtime.model.config import CheckpointError

    try:
        return work()
    except (SettingsError, PromptError, CheckpointError, DecodeError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
