"""Report the finished trainings of an ablation: means over seeds with 95 % intervals.

With two or more seeds, a Student's t interval describes the variation between seeds on the same
prompts. With one seed, only the accuracy has an interval, which describes the variation between
prompts. Differences between variants are computed seed by seed.
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
"""Two-sided 95 % quantiles of Student's t, for 1, 2, 3 ... degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeds. Its 95 % interval is ``value`` ± ``half``; None without an interval."""

    value: float
    half: float | None

    def text(self, digits: int, *, sign: bool = False) -> str:
        """Format the mean and its interval, such as ``78.1 ± 0.4``."""
        shown = f"{self.value:+.{digits}f}" if sign else f"{self.value:.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:.{digits}f}"


def mean_of_seeds(values: Sequence[float]) -> Figure:
    """Return the mean of one value per seed, with a 95 % interval if there are two or more."""
    if len(values) < 2:
        return Figure(values[0], None)
    spread = stdev(values) / math.sqrt(len(values))
    return Figure(fmean(values), T95[min(len(values) - 2, len(T95) - 1)] * spread)


def accuracy(families: Mapping[str, Mapping[str, int]]) -> float:
    """Return the percentage of right answers, as a mean over families with equal weights."""
    return fmean(100 * family["num_right"] / family["num_prompts"] for family in families.values())


def _accuracy_of_one(families: Mapping[str, Mapping[str, int]]) -> Figure:
    shares = [(family["num_right"], family["num_prompts"]) for family in families.values()]
    percentage = mean_of_shares(shares).scaled(100)
    return Figure(percentage.value, (percentage.high - percentage.low) / 2)


def tokens_per_forward(families: Mapping[str, Mapping[str, int]]) -> float:
    """Return the tokens per forward pass, as a mean over families with equal weights."""
    return fmean(family["num_tokens"] / family["num_forwards"] for family in families.values())


FamilyMetric = Callable[[Mapping[str, Mapping[str, int]]], float]


class AblationResults:
    """The results of an ablation, read from the content of its result file.

    runs: name of a variant -> seed -> result of this training.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.runs: dict[str, dict[int, Mapping[str, Any]]] = {}
        for run in content["runs"]:
            self.runs.setdefault(run["variant"], {})[run["seed"]] = run

    @property
    def variants(self) -> list[Variant]:
        """The variants that have at least one run, in the order of VARIANTS."""
        return [variant for variant in VARIANTS if variant.name in self.runs]

    def figure(self, name: str, way: str, metric: FamilyMetric) -> Figure | None:
        """Return the mean over seeds of ``metric``, or None if there are no results.

        name: the variant. way: the decoding method.
        """
        ways = [run["ways"][way] for run in self.runs[name].values() if way in run["ways"]]
        if len(ways) == 1 and metric is accuracy:
            return _accuracy_of_one(ways[0])
        return mean_of_seeds([metric(families) for families in ways]) if ways else None

    def change(self, name: str, than: str, way: str, metric: FamilyMetric) -> Figure | None:
        """Return ``metric`` of the variant ``name`` minus ``metric`` of the variant ``than``.

        This is the mean over the seeds that both variants have. Returns None if there is no such
        seed or if both are the same variant. way: the decoding method.
        """
        base, runs = self.runs.get(than, {}), self.runs[name]
        seeds = sorted(set(base) & set(runs))
        changes = [
            metric(runs[seed]["ways"][way]) - metric(base[seed]["ways"][way])
            for seed in seeds
            if way in runs[seed]["ways"]
        ]
        return mean_of_seeds(changes) if changes and name != than else None


def _text(figure: Figure | None, digits: int, *, sign: bool = False) -> str:
    return NONE if figure is None else figure.text(digits, sign=sign)


def write_results(plan: AblationPlan) -> AblationResults:
    """Write all finished trainings and their provenance to ``ablations.json``, and return them."""
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
    """Read a training log as points (tokens, clean loss, noisy loss).

    The losses are smoothed. The noisy loss is None in the stage ``ar``.
    """
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
    """Format the document as JSON with one line per run and one line per curve."""
    runs = ",\n".join(json.dumps(run) for run in document["runs"])
    curves = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(curve)}" for name, curve in document["curves"].items()
    )
    text = json.dumps({**document, "runs": [], "curves": {}}, indent=1)
    text = text.replace('"runs": []', f'"runs": [\n{runs}\n]')
    return text.replace('"curves": {}', f'"curves": {{\n{curves}\n}}') + "\n"


def table_of(results: AblationResults) -> Table:
    """Return a table of all variants: accuracy, tokens per forward pass, change in AR accuracy."""
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
