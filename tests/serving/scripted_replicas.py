"""Replicas without weights: each writes which process it is, then a text of its own for each
prompt. Imported by Ray's workers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripted_server import NAME, Oracle
from scripted_text import write_tokenizer

from mars_runtime.engine import Engine
from mars_runtime.serving.models import EngineModel
from mars_runtime.serving.server import ServePlan

LENGTH = 400


class Signed(Oracle):
    """Writes the number of its process first."""

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        """One byte is one token."""
        return f"{os.getpid()} {text_of(super().answer_to(prompt_ids))}"


def text_of(mark: str) -> str:
    """What stands behind the number of the process."""
    return (mark.encode("ascii", "replace").decode() * LENGTH)[:LENGTH]


def pid_of(text: str) -> int:
    """The process that wrote it."""
    return int(text.split()[0])


def answer_to(text: str, folder: Path) -> str:
    """What is written behind the number of the process to a question."""
    return text_of(Oracle().answer_to(write_tokenizer(folder).encode_prompt(text)))


def bring(
    plan: ServePlan, first: str = "", seconds: float = 0.02, slow: float = 0.02
) -> EngineModel:
    """A replica whose forward takes ``seconds``, ``slow`` ones where it makes the file ``first``,
    which only one can."""
    is_first = False
    if first:
        try:
            Path(first).touch(exist_ok=False)
            is_first = True
        except FileExistsError:
            pass
    backend = Signed(forward_seconds=slow if is_first else seconds)
    engine = Engine(backend, plan.max_runs, plan.max_waiting)
    tokenizer = write_tokenizer(Path(tempfile.mkdtemp()))
    return EngineModel(NAME, tokenizer, 8, engine)
