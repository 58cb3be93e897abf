"""The Frontier tab: measured results of this repository as points, the paper's as separate curves,
and requests that fail, which open as runs.

Reads result files in ``assets/results/`` and measures nothing. The failing requests have no figures
of their own: ``evaluate`` measures their kinds (checkpoints/mars-smollm2/README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.components.assets import ASSETS
from app.examples.book import CHAT, GRID, TASKS
from mars_runtime import tasks
from mars_runtime.settings import RECOMMENDED, DecodeSettings, describe
from mars_runtime.statistics import Estimate

RESULTS = ASSETS / "results"
FAILURES = Path(__file__).with_name("failures.json")
EXAMPLES = "{}: the examples to click"
OPEN = "{}: open requests of five kinds"
FAMILIES = "{}: six families of tasks"
ADAPTIVE = "{}: thresholds that adapt, on six families of tasks"
BENCHMARKS = {
    "ifeval_local": "IFEval, prompts followed to the letter",
    "bbh_local": "BIG-Bench Hard, without examples",
    "gsm8k_train_heldout": "GSM8K, training split",
    "humaneval_sandbox": "HumanEval",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One way of decoding. quality: a share from 0 to 1; tpf: tokens per forward."""

    name: str
    checkpoint: str
    settings: DecodeSettings
    quality: Estimate
    tpf: Estimate


@dataclass(frozen=True, slots=True)
class PointSet:
    """Ways that were measured on the same prompts, most of them on one checkpoint. quality:
    ``accuracy``, or ``agreement``: the share of answers with the very tokens of AR. prompt: what a
    point is opened with where the visitor has asked this checkpoint nothing; source: the file below
    ``assets/results/``."""

    title: str
    checkpoint: str
    quality: str
    prompt: str
    source: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A request, the checkpoint and the settings that fail at it, and what to see there."""

    title: str
    why: str
    prompt: str
    checkpoint: str = "mars-smollm2"
    settings: DecodeSettings = RECOMMENDED


Rows = Sequence[Mapping[str, Any]]


def frontier_json() -> str:
    """All sets that have been measured, the paper's curves, and what goes wrong, for the view."""
    told = {
        "sets": [asdict(one) for one in read_sets(RESULTS)],
        "paper": _read(RESULTS / "paper.json"),
        "failures": [asdict(one) for one in failures()],
    }
    return json.dumps(told, ensure_ascii=False)


def tour_set() -> dict[str, Any] | None:
    """The first set, which is the chat model's, as the tour shows it."""
    return next((asdict(one) for one in read_sets(RESULTS)), None)


def failures() -> Iterator[Failure]:
    """In the order in which they are listed; the prompts are those that ``evaluate`` asks, where a
    kind and a number of it are named."""
    for told in _read(FAILURES):
        if kind := told.pop("kind", ""):
            number = told.pop("number")
            told["prompt"] = tasks.generate(kind, "eval", 0, number + 1)[number].prompt
        if settings := told.pop("settings", None):
            told["settings"] = DecodeSettings(**settings)
        yield Failure(**told)


def read_sets(folder: Path) -> list[PointSet]:
    """The sets of a folder of results, those that are there."""

    def told(name: str, key: str) -> Rows:
        path = folder / f"{name}.json"
        found: Rows = _read(path)[key] if path.is_file() else ()
        return found

    found = [
        # Open requests have no right answer: how often a text is AR's own stands for quality.
        *_sets(told("chat_evaluation", "requests"), "chat_evaluation", OPEN, CHAT, "agreement"),
        *_sets(told("page_ways", "ways"), "page_ways", EXAMPLES, CHAT, "agreement"),
        *_sets(told("evaluation", "averages"), "evaluation", FAMILIES),
        *_methods(told("methods", "averages")),
        *_sets(told("thresholds", "averages"), "thresholds", ADAPTIVE),
    ]
    cells = told("lm_eval", "cells")
    for task, name in BENCHMARKS.items():
        rows = [cell for cell in cells if cell["task"] == task]
        found += _sets(rows, "lm_eval", f"{{}}: {name} ({{}} prompts)", CHAT)
    return [one for one in found if len(one.points) > 1]


def _sets(
    rows: Rows, source: str, title: str, prompts: str = TASKS, quality: str = "accuracy"
) -> Iterator[PointSet]:
    """A set for each checkpoint of a file. title: of its name and of the number of answers;
    prompts: the set of examples that a point is opened with."""
    for checkpoint in dict.fromkeys(row["checkpoint"] for row in rows):
        own = [row for row in rows if row["checkpoint"] == checkpoint]
        named = title.format(checkpoint, own[0].get("num_answers"))
        points = tuple(_point(row, quality) for row in own)
        yield PointSet(named, checkpoint, quality, GRID[prompts][0], f"{source}.json", points)


def _methods(rows: Rows) -> Iterator[PointSet]:
    """Every method on the same tasks: one set, though some have a checkpoint of their own."""
    drawn = [row for row in rows if row["settings"].get("masked", "both") == "both"]
    if drawn:  # the page drafts with masks in both models
        checkpoint = drawn[0]["checkpoint"]
        points = tuple(_point(row, "accuracy", beside=checkpoint) for row in drawn)
        title = f"{checkpoint} and what it is compared with: every method"
        yield PointSet(title, checkpoint, "accuracy", GRID[TASKS][0], "methods.json", points)


def _point(row: Mapping[str, Any], quality: str, beside: str = "") -> Point:
    """``beside``: the checkpoint that most have, which goes without saying."""
    settings, checkpoint = DecodeSettings(**row["settings"]), row["checkpoint"]
    name = describe(settings)
    if beside and checkpoint != beside:
        name = f"{name} · {checkpoint}"
    told = row[quality]
    held = Estimate(**told) if isinstance(told, dict) else Estimate(told, told, told)
    return Point(name, checkpoint, settings, held, Estimate(**row["tpf"]))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
