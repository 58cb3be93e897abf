"""Run other engines (``plan.ENGINES``) in child processes, to compare them with this runtime.

Each engine needs its own Python environment, because its packages conflict with ours or take long
to compile. The child process (``engine_child.py``) measures the times, so they exclude the
communication with this process.
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
    """An engine in a child process, which ``close`` ends.

    interpreter: path of a Python interpreter that has the engine's package. model: path of the
    weights. num_tokens: maximum number of tokens of a prompt and its answer together. Raises
    CheckpointError if the engine does not start.
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
                f"{engine.option} {interpreter} cannot be run. Pass the Python of an environment "
                f"that has {engine.package}."
            ) from error
        first = self._read()
        if "versions" not in first:
            self.close()
            reason = first.get("error", f"it does not have {engine.package}")
            raise CheckpointError(
                f"{engine.option} {interpreter} cannot decode {model.name} ({reason}). Pass the "
                f"Python of an environment where `pip install {engine.package}` succeeded."
            )
        self.versions: dict[str, str] = first["versions"]

    def ask(self, question: PromptGroup, decoding: AnswerEnd) -> TimedAnswer:
        """Answer the only prompt of a question, on as many threads as torch uses in this process.

        Raises RuntimeError if the child process has failed or ended.
        """
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
            raise RuntimeError(f"{self._name} has ended unexpectedly.") from error
        answer = self._read()
        if "tokens" not in answer:
            raise RuntimeError(answer.get("error", f"{self._name} has ended unexpectedly."))
        row = one_row(answer["tokens"], answer["moments"])
        return TimedAnswer((row,), answer["seconds"], len(answer["moments"]))

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _read(self) -> dict[str, Any]:
        """Read the next JSON line of the child process; return {} if the process has ended."""
        assert self._child.stdout is not None, "the child was started with a pipe"
        line = self._child.stdout.readline()
        parsed: dict[str, Any] = json.loads(line) if line else {}
        return parsed
