"""llama.cpp as a peer: a child process on the same GGUF file, asked over a pipe.

It lives in an environment of its own, because its Python package compiles for many minutes and is
needed by nobody else. The child takes the times, so the pipe is in no figure.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch

from mars_runtime.lab.benchmark.answer import Answer, one_row
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.benchmark.transformers_peers import Decoding
from mars_runtime.model.config import CheckpointError

CHILD = Path(__file__).with_name("llama_child.py")


class LlamaCpp:
    """A running child on ``gguf`` with room for ``num_tokens`` of prompt and answer; close it.

    interpreter: a Python that has llama-cpp-python. Raises CheckpointError.
    """

    def __init__(self, interpreter: str, gguf: Path, num_tokens: int, child: Path = CHILD) -> None:
        command = [interpreter, str(child), str(gguf), str(num_tokens)]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise CheckpointError(
                f"{interpreter} can't be run: give --llama-cpp the Python of an environment with "
                "llama-cpp-python."
            ) from error
        about = self._read()
        if "version" not in about:
            self.close()
            why = about.get("error", "it has no llama-cpp-python")
            raise CheckpointError(
                f"{interpreter} can't serve {gguf.name} ({why}): give --llama-cpp the Python of an "
                "environment where `pip install llama-cpp-python` has worked."
            )
        self.version: str = about["version"]
        self.system: str = about["system"]

    def ask(self, question: Question, decoding: Decoding) -> Answer:
        """One prompt, on as many threads as torch has. Raises RuntimeError when the child has
        ended."""
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
            raise RuntimeError("llama.cpp has stopped.") from error
        found = self._read()
        if not found:
            raise RuntimeError("llama.cpp has stopped.")
        row = one_row(found["tokens"], found["moments"])
        return Answer((row,), found["seconds"], len(found["moments"]))

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()

    def _read(self) -> dict[str, Any]:
        """The next line of the child, empty when it has ended."""
        assert self._child.stdout is not None, "the child was started with a pipe"
        line = self._child.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found
