"""Engines in a child process on the same weights: see ``plan.ENGINES``.

Each has an environment of its own, because its packages would replace ours or compile for many
minutes. The child (``engine_child.py``) measures the times, so they exclude the pipe.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch

from mars_runtime.lab.benchmark.elsewhere import AnswerEnd
from mars_runtime.lab.benchmark.paired import PromptGroup, TimedAnswer, one_row
from mars_runtime.lab.benchmark.plan import OtherEngine
from mars_runtime.model.config import CheckpointError

SCRIPT = Path(__file__).with_name("engine_child.py")


class ChildEngine:
    """A child process that decodes ``model``, a path; ``close`` ends it.

    interpreter: a Python with the engine's package. num_tokens: of prompt and answer together.
    versions: of the engine. Raises CheckpointError.
    """

    def __init__(
        self,
        engine: OtherEngine,
        interpreter: str,
        model: Path,
        num_tokens: int,
        script: Path = SCRIPT,
    ) -> None:
        command = [interpreter, str(script), engine.key, str(model), str(num_tokens)]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        self._name = engine.name
        try:
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise CheckpointError(
                f"{interpreter} can't be run: give {engine.option} the Python of an environment "
                f"with {engine.package}."
            ) from error
        first = self._read()
        if "versions" not in first:
            self.close()
            reason = first.get("error", f"it has no {engine.package}")
            raise CheckpointError(
                f"{interpreter} can't decode {model.name} ({reason}): give {engine.option} the "
                f"Python of an environment where `pip install {engine.package}` has worked."
            )
        self.versions: dict[str, str] = first["versions"]

    def ask(self, question: PromptGroup, decoding: AnswerEnd) -> TimedAnswer:
        """Answer one prompt with as many threads as torch uses. Raises RuntimeError if the child
        has failed or ended."""
        (prompt,) = question.prompts
        request = {
            "prompt": list(prompt),
            "max_new_tokens": decoding.max_new_tokens,
            "eos_ids": list(decoding.eos_ids),
            "threads": torch.get_num_threads(),
        }
        assert self._child.stdin is not None, "the child was started with a pipe"
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise RuntimeError(f"{self._name} has stopped.") from error
        answer = self._read()
        if "tokens" not in answer:
            raise RuntimeError(answer.get("error", f"{self._name} has stopped."))
        row = one_row(answer["tokens"], answer["moments"])
        return TimedAnswer((row,), answer["seconds"], len(answer["moments"]))

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()

    def _read(self) -> dict[str, Any]:
        """Return the child's next line, or an empty dictionary if it has ended."""
        assert self._child.stdout is not None, "the child was started with a pipe"
        line = self._child.stdout.readline()
        parsed: dict[str, Any] = json.loads(line) if line else {}
        return parsed
