"""Measured results of many prompts (``assets/results/``), as points for the Trade-off tab."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mars_runtime.files.paths import ASSETS
from mars_runtime.runs.statistics import Estimate, wilson
from mars_runtime.settings import describe, read_settings

RESULTS = ASSETS / "results"
FILES = {"page_methods": "methods", "chat_evaluation": "requests", "evaluation": "averages"}
"""Files with measured methods, and the key of their rows."""


@dataclass(frozen=True, slots=True)
class MethodPoint:
    """One method, measured on ``num_prompts`` prompts.

    agreement: the share of answers with exactly AR's tokens. tpf: tokens per forward pass.
    speed: relative to plain AR; None if the time was not measured.
    """

    checkpoint: str
    name: str
    num_prompts: int
    agreement: Estimate
    tpf: Estimate
    speed: Estimate | None


def read_points(folder: Path = RESULTS) -> list[MethodPoint]:
    points: list[MethodPoint] = []
    for name, key in FILES.items():
        path = folder / f"{name}.json"
        if path.is_file():
            document = json.loads(path.read_text(encoding="utf-8"))
            points.extend(_points(document, key))
    return points


def points_json() -> str:
    return json.dumps([asdict(point) for point in read_points()])


def _points(document: Mapping[str, Any], key: str) -> Iterator[MethodPoint]:
    for row in document[key]:
        settings = read_settings(row["settings"])
        if settings.method == "ar":
            continue
        kinds = len(row.get("by_kind") or row.get("families") or ())
        num = row.get("num_answers") or kinds * document["asked"]["prompts"]
        agreement = row["agreement"]
        if isinstance(agreement, dict):
            agreement = Estimate(**agreement)
        else:
            agreement = wilson(round(agreement * num), num)
        speed = Estimate(**row["speed"]) if row.get("speed") else None
        tpf, name = Estimate(**row["tpf"]), describe(settings)
        yield MethodPoint(row["checkpoint"], name, num, agreement, tpf, speed)
