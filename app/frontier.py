"""The Frontier tab: measured results of this repository as points, the paper's apart, and what goes
wrong, as requests to open as runs.

Reads files of ``assets/results/`` that commands wrote, and measures nothing. No figure stands with
what goes wrong: its kinds are measured by ``evaluate`` (docs/measurements.md), and each run shows
its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from app.components.assets import ASSETS
from app.components.views import FrontierView
from app.examples.book import CHAT, GRID, TASKS
from mars_runtime import tasks
from mars_runtime.settings import RECOMMENDED, DecodeSettings, describe
from mars_runtime.statistics import Estimate

RESULTS = ASSETS / "results"
FAILURES = Path(__file__).with_name("failures.json")
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


Maker = Callable[[Mapping[str, Any], str], Iterator[PointSet]]
"""Given a file's content and its name: the sets that it holds."""


def frontier_tab() -> None:
    """Build the tab, one view: the runs that it opens go the way of every view's."""
    FrontierView(frontier_json, elem_id="frontier")


def frontier_json() -> str:
    """All sets that have been measured, the paper's curves, and what goes wrong, for the view."""
    told = {
        "sets": [asdict(one) for one in read_sets(RESULTS)],
        "paper": _read(RESULTS / "paper.json"),
        "failures": [asdict(one) for one in failures()],
    }
    return json.dumps(told, ensure_ascii=False)


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
    makers: dict[str, Maker] = {
        "chat_evaluation": _requests,
        "evaluation": partial(_tasks, title="{}: six families of tasks"),
        "methods": _methods,
        "thresholds": partial(_tasks, title="{}: thresholds that adapt, on six families of tasks"),
        "lm_eval": _benchmarks,
    }
    found: list[PointSet] = []
    for name, make in makers.items():
        path = folder / f"{name}.json"
        if path.is_file():
            found += make(_read(path), path.name)
    return [one for one in found if len(one.points) > 1]


def _requests(told: Mapping[str, Any], source: str) -> Iterator[PointSet]:
    """Open requests have no right answer: how often a text is AR's own stands for quality."""
    for checkpoint, rows in _by_checkpoint(told["requests"]):
        points = tuple(_point(row, Estimate(*[row["agreement"]] * 3), row["tpf"]) for row in rows)
        title = f"{checkpoint}: open requests of five kinds"
        yield PointSet(title, checkpoint, "agreement", GRID[CHAT][0], source, points)


def _tasks(told: Mapping[str, Any], source: str, title: str) -> Iterator[PointSet]:
    for checkpoint, rows in _by_checkpoint(told["averages"]):
        points = tuple(_point(row, Estimate(**row["accuracy"]), row["tpf"]) for row in rows)
        named = title.format(checkpoint)
        yield PointSet(named, checkpoint, "accuracy", GRID[TASKS][0], source, points)


def _methods(told: Mapping[str, Any], source: str) -> Iterator[PointSet]:
    """Every method on the same tasks: one set, though some have a checkpoint of their own."""
    rows = [row for row in told["averages"] if row["settings"].get("masked", "both") == "both"]
    if rows:  # the page drafts with masks in both models
        checkpoint = rows[0]["checkpoint"]
        points = tuple(
            _point(row, Estimate(**row["accuracy"]), row["tpf"], beside=checkpoint) for row in rows
        )
        title = f"{checkpoint} and what it is compared with: every method"
        yield PointSet(title, checkpoint, "accuracy", GRID[TASKS][0], source, points)


def _benchmarks(told: Mapping[str, Any], source: str) -> Iterator[PointSet]:
    for task, name in BENCHMARKS.items():
        for checkpoint, rows in _by_checkpoint([c for c in told["cells"] if c["task"] == task]):
            points = tuple(_point(row, Estimate(**row["accuracy"]), row["tpf"]) for row in rows)
            title = f"{checkpoint}: {name} ({rows[0]['num_answers']} prompts)"
            yield PointSet(title, checkpoint, "accuracy", GRID[CHAT][0], source, points)


def _by_checkpoint(
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for checkpoint in dict.fromkeys(row["checkpoint"] for row in rows):
        yield checkpoint, [row for row in rows if row["checkpoint"] == checkpoint]


def _point(
    row: Mapping[str, Any], quality: Estimate, tpf: Mapping[str, float], beside: str = ""
) -> Point:
    """``beside``: the checkpoint that most have, which goes without saying."""
    settings, checkpoint = DecodeSettings(**row["settings"]), row["checkpoint"]
    name = describe(settings)
    if beside and checkpoint != beside:
        name = f"{name} · {checkpoint}"
    return Point(name, checkpoint, settings, quality, Estimate(**tpf))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
