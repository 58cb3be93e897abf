"""Measured results of this repository as points: quality over tokens per forward or over speed.

Reads the result files in ``assets/results/`` and measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.ui.examples import CHAT, GRID, TASKS
from mars_runtime.places import ASSETS
from mars_runtime.settings import DecodeSettings, describe, read_settings
from mars_runtime.statistics import Estimate

RESULTS = ASSETS / "results"
EXAMPLES = "{}: example prompts, with measured speed"
OPEN = "{}: five kinds of open requests"
FAMILIES = "{}: six task families"
ADAPTIVE = "{}: adaptive thresholds, six task families"
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class MethodPoint:
    """One method with its settings.

    quality: a share from 0 to 1. tpf: tokens per forward. speed: tokens per second relative to
    plain AR's; None if the time was not measured.
    """

    name: str
    checkpoint: str
    settings: DecodeSettings
    quality: Estimate
    tpf: Estimate
    speed: Estimate | None


@dataclass(frozen=True, slots=True)
class PointSet:
    """Methods measured on the same prompts, usually with one checkpoint.

    quality: ``accuracy``, or ``agreement``: the share of answers with exactly AR's tokens. prompt:
    used when a point is clicked and the visitor has not run a prompt on this checkpoint.
    source: the file in ``assets/results/``.
    """

    title: str
    checkpoint: str
    quality: str
    prompt: str
    source: str
    points: tuple[MethodPoint, ...]


def tour_set() -> dict[str, Any] | None:
    """Return the first set (the chat model's) for the tour."""
    return next((asdict(result_set) for result_set in read_sets(RESULTS)), None)


def read_sets(folder: Path) -> list[PointSet]:
    """Return the sets of a results folder, except those without a file."""

    def told(name: str, key: str) -> Rows:
        path = folder / f"{name}.json"
        rows: Rows = read_json(path)[key] if path.is_file() else ()
        return rows

    sets = [
        # Open requests have no right answer, so quality is the share of answers equal to AR's.
        *_sets(told("chat_evaluation", "requests"), "chat_evaluation", OPEN, CHAT, "agreement"),
        *_sets(told("page_ways", "ways"), "page_ways", EXAMPLES, CHAT, "agreement"),
        *_sets(told("evaluation", "averages"), "evaluation", FAMILIES),
        *_methods(told("methods", "averages")),
        *_sets(told("thresholds", "averages"), "thresholds", ADAPTIVE),
    ]
    return [result_set for result_set in sets if len(result_set.points) > 1]


def _sets(
    rows: Rows, source: str, title: str, prompts: str = TASKS, quality: str = "accuracy"
) -> Iterator[PointSet]:
    """Yield one set per checkpoint of a file.

    title: a format string for the checkpoint's name and the number of answers. prompts: the set of
    examples from which a clicked point takes its prompt.
    """
    for checkpoint in dict.fromkeys(row["checkpoint"] for row in rows):
        of_checkpoint = [row for row in rows if row["checkpoint"] == checkpoint]
        named = title.format(checkpoint, of_checkpoint[0].get("num_answers"))
        points = tuple(_point(row, quality) for row in of_checkpoint)
        yield PointSet(named, checkpoint, quality, GRID[prompts][0], f"{source}.json", points)


def _methods(rows: Rows) -> Iterator[PointSet]:
    """Return every method on the same tasks as one set, although some need another checkpoint."""
    drawn = [row for row in rows if row["settings"].get("masked", "both") == "both"]
    if drawn:  # the page always drafts with masks
        checkpoint = drawn[0]["checkpoint"]
        points = tuple(_point(row, "accuracy", beside=checkpoint) for row in drawn)
        title = f"{checkpoint} and its baselines: every method"
        yield PointSet(title, checkpoint, "accuracy", GRID[TASKS][0], "methods.json", points)


def _point(row: Mapping[str, Any], quality: str, beside: str = "") -> MethodPoint:
    """Return a row as a point. ``beside``: the most common checkpoint, which is not named in
    labels.
    """
    settings, checkpoint = read_settings(row["settings"]), row["checkpoint"]
    name = describe(settings)
    if beside and checkpoint != beside:
        name = f"{name} · {checkpoint}"
    quality_value = row[quality]
    held = (
        Estimate(**quality_value)
        if isinstance(quality_value, dict)
        else Estimate(quality_value, quality_value, quality_value)
    )
    timed = row.get("speed")
    speed = Estimate(**timed) if timed else None
    return MethodPoint(name, checkpoint, settings, held, Estimate(**row["tpf"]), speed)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
