"""Load the questions of the benchmarks from files in the folder MARS_BENCHMARKS.

Importing this module also registers the model ``mars`` with lm-eval. The task files in ``tasks/``
refer to functions of this module, so lm-eval imports the module before it looks up the model.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import lm_eval.models  # noqa: F401  # must register lm-eval's models before ours
from lm_eval.api.registry import model_registry

from mars_runtime.lab.training.distill.mixture import Prompt
from mars_runtime.lab.training.distill.requests import MATHS_FORMS, Texts
from mars_runtime.lab.training.distill.run import SEED

NAME = "mars"
if NAME not in model_registry:
    model_registry.register(NAME, target="mars_runtime.lab.harness.model:MarsLM")

Splits = dict[str, Any]
"""A data set of lm-eval: name of a split -> ``datasets.Dataset``."""


class BenchmarkError(ValueError):
    """The file of a benchmark is missing. The message contains the solution."""


def ifeval(**_: Any) -> Splits:
    """Return the 541 prompts of IFEval."""
    return _test_split(_rows("ifeval_input_data.jsonl"))


def humaneval(**_: Any) -> Splits:
    """Return the 164 functions of HumanEval."""
    return _test_split(_rows("HumanEval.jsonl.gz"))


def bbh(**_: Any) -> Splits:
    """Return the questions of BIG-Bench Hard, alternating between its 27 tasks.

    Therefore the first N questions are spread evenly over the tasks, for any N.
    """
    return _test_split(list(in_turn(_rows("bbh.jsonl.gz"))))


def gsm8k_train_heldout(**_: Any) -> Splits:
    """Return questions of GSM8K's training split that the bundled adapter was not trained on.

    The questions have the form of the adapter's training prompts.
    """
    folder = _path("gsm8k_train.jsonl").parent
    answers = {row["question"].strip(): row["answer"] for row in _rows("gsm8k_train.jsonl")}
    prompts = (Prompt("maths", turns) for turns in Texts(folder, SEED).maths())
    held_out = [prompt.turns[0] for prompt in prompts if prompt.is_held_out]
    return _test_split([_problem(prompt, answers) for prompt in held_out])


def in_turn(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the first row of every task, then the second row of every task, and so on."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        tasks.setdefault(row["task"], []).append(row)
    for index in range(max(map(len, tasks.values()), default=0)):
        yield from (task_rows[index] for task_rows in tasks.values() if index < len(task_rows))


def question_in(prompt: str, questions: Mapping[str, str]) -> str:
    """Return the question that a prompt contains. Raises StopIteration if it contains none."""
    frames = (form.split("{question}") for form in MATHS_FORMS)
    bare = (prompt.removeprefix(before).removesuffix(after) for before, after in frames)
    return next(question for question in bare if question in questions)


def _test_split(rows: list[dict[str, Any]]) -> Splits:
    return {"test": datasets.Dataset.from_list(rows)}


def _problem(prompt: str, answers: Mapping[str, str]) -> dict[str, Any]:
    final = answers[question_in(prompt, answers)].rpartition("####")[2]
    return {"prompt": prompt, "answer": final.strip().replace(",", "")}


def _path(name: str) -> Path:
    """Return the path of a file in MARS_BENCHMARKS or its parent folder. Raises BenchmarkError."""
    folder = os.environ.get("MARS_BENCHMARKS", "")
    if not folder:
        raise BenchmarkError("Set MARS_BENCHMARKS to the folder with the files of the benchmarks.")
    for path in (Path(folder) / name, Path(folder).parent / name):
        if path.is_file():
            return path
    raise BenchmarkError(
        f"MARS_BENCHMARKS {folder} has no file {name}. Set it to the folder with this file."
    )


def _rows(name: str) -> list[dict[str, Any]]:
    path = _path(name)
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
