"""Figures of finished trainings: means over seeds with 95 % intervals.

The interval over two or more seeds is Student's, for another seed on the same prompts. With one
seed only the accuracy has an interval, over the prompts. Differences are taken seed by seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from mars_runtime.lab.ablation.variants import VARIANTS, AblationPlan, Variant
from mars_runtime.lab.tables import NONE, Table
from mars_runtime.outputs import write_text
from mars_runtime.provenance import provenance
from mars_runtime.statistics import mean_of_shares

BASE, AR_ONLY = "mars-b8", "ar"
AR, WAYS_SHOWN = "ar", ("mars 0.95 B4", "mars 0.95 B8")
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95 % by degrees of freedom, from 1."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeds. half: half the interval, None if there is none."""

    value: float
    half: float | None

    def text(self, digits: int, *, sign: bool = False) -> str:
        """Return ``78.1 ± 0.4``."""
        shown = f"{self.value:+.{digits}f}" if sign else f"{self.value:.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:.{digits}f}"


def mean_of_seeds(values: Sequence[float]) -> Figure:
    """Return the mean of at least one value, with an interval for two or more."""
    if len(values) < 2:
        return Figure(values[0], None)
    spread = stdev(values) / math.sqrt(len(values))
    return Figure(fmean(values), T95[min(len(values) - 2, len(T95) - 1)] * spread)


def accuracy(families: Mapping[str, Mapping[str, int]]) -> float:
    """Return the percentage of right answers; families have equal weight."""
    return fmean(100 * family["num_right"] / family["num_prompts"] for family in families.values())


def _accuracy_of_one(families: Mapping[str, Mapping[str, int]]) -> Figure:
    shares = [(family["num_right"], family["num_prompts"]) for family in families.values()]
    percentage = mean_of_shares(shares).scaled(100)
    return Figure(percentage.value, (percentage.high - percentage.low) / 2)


def tokens_per_forward(families: Mapping[str, Mapping[str, int]]) -> float:
    """Return tokens per forward pass; families have equal weight."""
    return fmean(family["num_tokens"] / family["num_forwards"] for family in families.values())


FamilyMetric = Callable[[Mapping[str, Mapping[str, int]]], float]


class AblationResults:
    """The trainings of a result by variant, and their figures."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.runs: dict[str, dict[int, Mapping[str, Any]]] = {}
        for run in content["runs"]:
            self.runs.setdefault(run["variant"], {})[run["seed"]] = run

    @property
    def variants(self) -> list[Variant]:
        """The variants that have a run, in the order of VARIANTS."""
        return [variant for variant in VARIANTS if variant.name in self.runs]

    def figure(self, name: str, way: str, metric: FamilyMetric) -> Figure | None:
        """Return a figure of a variant with one method; None if it was not measured."""
        ways = [run["ways"][way] for run in self.runs[name].values() if way in run["ways"]]
        if len(ways) == 1 and metric is accuracy:
            return _accuracy_of_one(ways[0])
        return mean_of_seeds([metric(families) for families in ways]) if ways else None

    def change(self, name: str, than: str, way: str, metric: FamilyMetric) -> Figure | None:
        """Return the difference from the variant ``than``, seed by seed."""
        base, own = self.runs.get(than, {}), self.runs[name]
        seeds = sorted(set(base) & set(own))
        changes = [
            metric(own[seed]["ways"][way]) - metric(base[seed]["ways"][way])
            for seed in seeds
            if way in own[seed]["ways"]
        ]
        return mean_of_seeds(changes) if changes and name != than else None


def _text(figure: Figure | None, digits: int, *, sign: bool = False) -> str:
    return NONE if figure is None else figure.text(digits, sign=sign)


def write_results(plan: AblationPlan) -> AblationResults:
    """Write all finished trainings to ``ablations.json``, with provenance; return them."""
    document = {
        **provenance(plan.start),
        "start": plan.start,
        "tokens": plan.tokens,
        "seconds": plan.seconds if math.isfinite(plan.seconds) else None,
        "num_prompts": plan.num_prompts,
        "runs": [_read(path) for path in sorted(plan.out.glob("runs/*/result.json"))],
        "curves": {
            path.parent.name: _curve(path) for path in sorted(plan.out.glob("runs/*/log-*.jsonl"))
        },
    }
    write_text(plan.out / "ablations.json", _json(document))
    return AblationResults(document)


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _curve(path: Path) -> list[tuple[int, float, float | None]]:
    """Return the smoothed losses: tokens, clean, noisy (None in stage ``ar``)."""
    points = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        (
            point["tokens"],
            round(point["clean"], 4),
            round(point["noisy"], 4) if "noisy" in point else None,
        )
        for point in points
    ]


def _json(document: Mapping[str, Any]) -> str:
    """Return JSON with one line per run and per curve."""
    runs = ",\n".join(json.dumps(run) for run in document["runs"])
    curves = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(curve)}" for name, curve in document["curves"].items()
    )
    rest = json.dumps({**document, "runs": [], "curves": {}}, indent=1)
    whole = rest.replace('"runs": []', f'"runs": [\n{runs}\n]')
    return whole.replace('"curves": {}', f'"curves": {{\n{curves}\n}}') + "\n"


def table_of(results: AblationResults) -> Table:
    """Return accuracy, TPF and the change of AR accuracy of each variant."""
    columns = (
        *("variant", "change", "seeds", "AR %", "against ar", "against mars-b8"),
        *("τ 0.95 B=4 %", "TPF", "τ 0.95 B=8 %", "TPF", "lossless B=4 TPF", "B=8 TPF"),
    )
    lines = []
    for variant in results.variants:
        line = [variant.name, variant.change, str(len(results.runs[variant.name]))]
        line.append(_text(results.figure(variant.name, AR, accuracy), 1))
        for than in (AR_ONLY, BASE):
            line.append(_text(results.change(variant.name, than, AR, accuracy), 1, sign=True))
        for way in WAYS_SHOWN:
            line.append(_text(results.figure(variant.name, way, accuracy), 1))
            line.append(_text(results.figure(variant.name, way, tokens_per_forward), 2))
        for way in ("lossless 0 B4", "lossless 0 B8"):
            line.append(_text(results.figure(variant.name, way, tokens_per_forward), 2))
        lines.append(tuple(line))
    return Table("Variants, mean over seeds ± half of a 95 % interval", columns, tuple(lines))
