"""Replicas without weights: each writes its process id, then a text of its own for each prompt.
Imported by Ray's workers."""

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
    """Writes the id of its process first; a byte is a token."""

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        return f"{os.getpid()} {text_of(super().answer_to(prompt_ids))}"


def text_of(mark: str) -> str:
    """Return what follows the process id."""
    return (mark.encode("ascii", "replace").decode() * LENGTH)[:LENGTH]


def pid_of(text: str) -> int:
    return int(text.split()[0])


def answer_to(text: str, folder: Path) -> str:
    """Return what follows the process id in the answer to a question."""
    return text_of(Oracle().answer_to(write_tokenizer(folder).encode_prompt(text)))


def bring(
    plan: ServePlan, first: str = "", seconds: float = 0.02, slow: float = 0.02
) -> EngineModel:
    """Make a replica with forwards of ``seconds``, or of ``slow`` seconds in the one that can
    create the file ``first``.
    """
    try:
        is_first = bool(first)
        if is_first:
            Path(first).touch(exist_ok=False)
    except FileExistsError:
        is_first = False
    backend = Signed(forward_seconds=slow if is_first else seconds)
    engine = Engine(backend, plan.max_runs, plan.max_waiting)
    return EngineModel(NAME, write_tokenizer(Path(tempfile.mkdtemp())), 8, engine)
