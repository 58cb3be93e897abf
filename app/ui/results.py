"""Measured results of this repository, as points for the Frontier tab: quality over tokens per
forward pass, or over speed.

The points are read from the result files in ``assets/results/``.
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
OPEN = "{}: five types of open-ended requests"
FAMILIES = "{}: six task families"
ADAPTIVE = "{}: adaptive thresholds, six task families"
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class MethodPoint:
    """One method with its settings.

    quality: a share from 0 to 1. tpf: tokens per forward pass. speed: tokens per second relative to
    plain AR; None if the time was not measured.
    """

    name: str
    checkpoint: str
    settings: DecodeSettings
    quality: Estimate
    tpf: Estimate
    speed: Estimate | None


@dataclass(frozen=True, slots=True)
class PointSet:
    """Methods that were measured on the same prompts, usually with the same checkpoint.

    quality: ``accuracy``, or ``agreement`` for the share of answers with exactly AR's tokens.
    prompt: the prompt to run when a point is clicked and the visitor has not run a prompt with this
    checkpoint.
    source: the file in ``assets/results/``.
    """

    title: str
    checkpoint: str
    quality: str
    prompt: str
    source: str
    points: tuple[MethodPoint, ...]


def tour_set() -> dict[str, Any] | None:
    """Return the first set, which has the results of the chat model, for the tour."""
    return next((asdict(result_set) for result_set in read_sets(RESULTS)), None)


def read_sets(folder: Path) -> list[PointSet]:
    """Return the sets of a results folder. Sets without a result file are left out."""

    def rows_of(name: str, key: str) -> Rows:
        path = folder / f"{name}.json"
        rows: Rows = read_json(path)[key] if path.is_file() else ()
        return rows

    sets = [
        # Open-ended requests have no right answer, so quality is the share of answers that are
        # equal to AR's.
        *_sets(rows_of("chat_evaluation", "requests"), "chat_evaluation", OPEN, CHAT, "agreement"),
        *_sets(rows_of("page_ways", "ways"), "page_ways", EXAMPLES, CHAT, "agreement"),
        *_sets(rows_of("evaluation", "averages"), "evaluation", FAMILIES),
        *_methods(rows_of("methods", "averages")),
        *_sets(rows_of("thresholds", "averages"), "thresholds", ADAPTIVE),
    ]
    return [result_set for result_set in sets if len(result_set.points) > 1]


def _sets(
    rows: Rows, source: str, title: str, prompts: str = TASKS, quality: str = "accuracy"
) -> Iterator[PointSet]:
    """Yield one set for each checkpoint in the rows of a file.

    title: format string for the checkpoint's name. prompts: the name of the example set with the
    prompt that a click on a point runs.
    """
    for checkpoint in dict.fromkeys(row["checkpoint"] for row in rows):
        of_checkpoint = [row for row in rows if row["checkpoint"] == checkpoint]
        named = title.format(checkpoint, of_checkpoint[0].get("num_answers"))
        points = tuple(_point(row, quality) for row in of_checkpoint)
        yield PointSet(named, checkpoint, quality, GRID[prompts][0], f"{source}.json", points)


def _methods(rows: Rows) -> Iterator[PointSet]:
    """Yield one set that compares all methods on the same tasks. Some of its methods use a
    checkpoint other than the set's main checkpoint.
    """
    # The page always uses masks, so rows that were measured without masks are left out.
    drawn = [row for row in rows if row["settings"].get("masked", "both") == "both"]
    if drawn:
        checkpoint = drawn[0]["checkpoint"]
        points = tuple(_point(row, "accuracy", main=checkpoint) for row in drawn)
        title = f"{checkpoint} and its baselines: every method"
        yield PointSet(title, checkpoint, "accuracy", GRID[TASKS][0], "methods.json", points)


def _point(row: Mapping[str, Any], quality: str, main: str = "") -> MethodPoint:
    """Return the point for a row of results. main: the set's main checkpoint, which labels omit."""
    settings, checkpoint = read_settings(row["settings"]), row["checkpoint"]
    name = describe(settings)
    if main and checkpoint != main:
        name = f"{name} · {checkpoint}"
    quality_value = row[quality]
    estimate = (
        Estimate(**quality_value)
        if isinstance(quality_value, dict)
        else Estimate(quality_value, quality_value, quality_value)
    )
    timed = row.get("speed")
    speed = Estimate(**timed) if timed else None
    return MethodPoint(name, checkpoint, settings, estimate, Estimate(**row["tpf"]), speed)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
