"""The split of a step as a table and as JSON values, beside what the machine allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mars_runtime.lab.evaluation.tables import Table
from mars_runtime.lab.profiling.forward import Load
from mars_runtime.lab.profiling.limits import Limits
from mars_runtime.lab.profiling.record import Recording
from mars_runtime.lab.profiling.split import PARTS, Part, typical

NONE = "–"


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a step: seconds, its share, and the least that reading and computing allow
    (None where neither says anything)."""

    part: str
    seconds: float
    share: float
    read_seconds: float | None
    compute_seconds: float | None


def lines_of(recording: Recording, load: Load, limits: Limits) -> list[Line]:
    """Every part of a typical step, then the whole."""
    wall = recording.seconds
    parts = typical(recording.parts, wall)
    head_bytes = load.head_bytes
    reads: dict[Part, int] = {"matmuls": load.weight_bytes - head_bytes, "head": head_bytes}
    works: dict[Part, float] = {
        "matmuls": load.operations(recording.num_tokens, 0),
        "head": load.operations(0, recording.num_slots),
    }
    lines = [
        Line(
            part,
            parts[part],
            parts[part] / wall,
            limits.read_seconds(reads[part]) if part in reads else None,
            limits.compute_seconds(works[part]) if part in works else None,
        )
        for part in PARTS
        if part in parts
    ]
    read = limits.read_seconds(load.weight_bytes)
    return [*lines, Line("step", wall, 1.0, read, limits.compute_seconds(sum(works.values())))]


def split_table(name: str, recording: Recording, lines: list[Line]) -> Table:
    """A line a part: milliseconds, share, the two limits, and how near the slower one is."""
    rows = tuple(
        (
            line.part,
            f"{line.seconds * 1000:.3f}",
            f"{line.share:.0%}",
            _milliseconds(line.read_seconds),
            _milliseconds(line.compute_seconds),
            _reached(line),
        )
        for line in lines
    )
    slowdown = recording.profiled_seconds / recording.seconds
    title = (
        f"{name}: medians of {recording.num_steps} steps, {recording.num_tokens:.1f} tokens fed, "
        f"{recording.num_slots:.1f} logits read; {slowdown:.2f} times as long when profiled"
    )
    columns = ("part", "ms", "share", "least to read", "least to compute", "of the limit")
    return Table(title, columns, rows)


def lines_json(lines: list[Line]) -> list[dict[str, Any]]:
    """Plain values, in seconds."""
    return [
        {
            "part": line.part,
            "seconds": line.seconds,
            "share": line.share,
            "read_seconds": line.read_seconds,
            "compute_seconds": line.compute_seconds,
        }
        for line in lines
    ]


def _milliseconds(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds * 1000:.3f}"


def _reached(line: Line) -> str:
    """What share of the speed that the slower limit allows is reached."""
    if line.read_seconds is None or not line.seconds:
        return NONE
    return f"{max(line.read_seconds, line.compute_seconds or 0.0) / line.seconds:.0%}"
