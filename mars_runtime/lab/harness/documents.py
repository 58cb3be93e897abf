"""The questions of the benchmarks, from the files in the folder ``MARS_BENCHMARKS``.

Importing this module also registers the model: lm-eval imports the functions of a task file before
it resolves the model.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import lm_eval.models  # noqa: F401  # registers its own models, which requires an empty registry
from lm_eval.api.registry import model_registry

from mars_runtime.lab.training.distill.mixture import Prompt
from mars_runtime.lab.training.distill.requests import MATHS_FORMS, Texts
from mars_runtime.lab.training.distill.run import SEED

NAME = "mars"
if NAME not in model_registry:
    model_registry.register(NAME, target="mars_runtime.lab.harness.model:MarsLM")

Splits = dict[str, Any]
"""A data set of lm-eval: a ``datasets.Dataset`` by the name of its split."""


class BenchmarkError(ValueError):
    """A benchmark's file is missing; the message is one sentence with the remedy."""


def ifeval(**_: Any) -> Splits:
    """Return the 541 prompts of IFEval."""
    return _test_split(_rows("ifeval_input_data.jsonl"))


def humaneval(**_: Any) -> Splits:
    """Return the 164 functions of HumanEval."""
    return _test_split(_rows("HumanEval.jsonl.gz"))


def bbh(**_: Any) -> Splits:
    """Return BIG-Bench Hard: the first question of each of its 27 tasks, then the second ..., so
    that any number of questions covers all tasks equally."""
    return _test_split(list(in_turn(_rows("bbh.jsonl.gz"))))


def gsm8k_train_heldout(**_: Any) -> Splits:
    """Return questions of GSM8K's *training* split that a hash excludes from the training of the
    chat model's adapter, in the form of its training prompts."""
    folder = _path("gsm8k_train.jsonl").parent
    answers = {row["question"].strip(): row["answer"] for row in _rows("gsm8k_train.jsonl")}
    prompts = (Prompt("maths", turns) for turns in Texts(folder, SEED).maths())
    held_out = [prompt.turns[0] for prompt in prompts if prompt.is_held_out]
    return _test_split([_problem(prompt, answers) for prompt in held_out])


def in_turn(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row of each task, then the next of each."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        tasks.setdefault(row["task"], []).append(row)
    for place in range(max(map(len, tasks.values()), default=0)):
        yield from (task_rows[place] for task_rows in tasks.values() if place < len(task_rows))


def question_in(prompt: str, questions: Mapping[str, str]) -> str:
    """Return the question that a prompt contains. Raises StopIteration if there is none."""
    frames = (form.split("{question}") for form in MATHS_FORMS)
    bare = (prompt.removeprefix(before).removesuffix(after) for before, after in frames)
    return next(question for question in bare if question in questions)


def _test_split(rows: list[dict[str, Any]]) -> Splits:
    return {"test": datasets.Dataset.from_list(rows)}


def _problem(prompt: str, answers: Mapping[str, str]) -> dict[str, Any]:
    final = answers[question_in(prompt, answers)].rpartition("####")[2]
    return {"prompt": prompt, "answer": final.strip().replace(",", "")}


def _path(name: str) -> Path:
    """Return a file of the folder or of its parent. Raises BenchmarkError."""
    folder = os.environ.get("MARS_BENCHMARKS", "")
    if not folder:
        raise BenchmarkError("Set MARS_BENCHMARKS to the folder of the benchmarks' files.")
    for path in (Path(folder) / name, Path(folder).parent / name):
        if path.is_file():
            return path
    raise BenchmarkError(
        f"There is no {name} in {folder}. Set MARS_BENCHMARKS to the folder that has it."
    )


def _rows(name: str) -> list[dict[str, Any]]:
    path = _path(name)
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
