"""From counts to figures, tables and a picture: the mean over seeds with a 95 % interval.

An interval is Student's, over the seeds: it tells how far another seed would move a figure, on the
same prompts. Of one seed there is only the accuracy's own, over the prompts. All variants answer
the same prompts, so differences are taken seed by seed. Measures nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from mars_runtime.lab.ablation.variants import CHECKPOINTS, VARIANTS, AblationPlan, Variant
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
    """A mean over seeds; half: of its interval, None where there is none."""

    value: float
    half: float | None

    def text(self, digits: int, *, sign: bool = False) -> str:
        """``78.1 ± 0.4``."""
        shown = f"{self.value:+.{digits}f}" if sign else f"{self.value:.{digits}f}"
        return shown if self.half is None else f"{shown} ± {self.half:.{digits}f}"


def mean_of_seeds(values: Sequence[float]) -> Figure:
    """The mean of at least one value and, of two and more, half its interval."""
    if len(values) < 2:
        return Figure(values[0], None)
    spread = stdev(values) / math.sqrt(len(values))
    return Figure(fmean(values), T95[min(len(values) - 2, len(T95) - 1)] * spread)


def accuracy(families: Mapping[str, Mapping[str, int]]) -> float:
    """Right answers in percent, each family counting alike."""
    return fmean(100 * one["num_right"] / one["num_prompts"] for one in families.values())


def _accuracy_of_one(families: Mapping[str, Mapping[str, int]]) -> Figure:
    shares = [(one["num_right"], one["num_prompts"]) for one in families.values()]
    found = mean_of_shares(shares).scaled(100)
    return Figure(found.value, (found.high - found.low) / 2)


def tokens_per_forward(families: Mapping[str, Mapping[str, int]]) -> float:
    """All tokens over all forwards of a family, each family counting alike."""
    return fmean(one["num_tokens"] / one["num_forwards"] for one in families.values())


def as_ar(families: Mapping[str, Mapping[str, int]]) -> float:
    """Answers that are AR's of the same weights, in percent, each family counting alike."""
    return fmean(100 * one["num_as_ar"] / one["num_prompts"] for one in families.values())


FamilyMetric = Callable[[Mapping[str, Mapping[str, int]]], float]


class AblationResults:
    """The trainings of a document by variant, and their figures."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.runs: dict[str, dict[int, Mapping[str, Any]]] = {}
        for run in content["runs"]:
            self.runs.setdefault(run["variant"], {})[run["seed"]] = run

    @property
    def variants(self) -> list[Variant]:
        """Those that have a run, in the order of the list."""
        return [variant for variant in VARIANTS if variant.name in self.runs]

    def figure(self, name: str, way: str, metric: FamilyMetric) -> Figure | None:
        """Of one variant decoded in one way; None where it was not."""
        ways = [run["ways"][way] for run in self.runs[name].values() if way in run["ways"]]
        if len(ways) == 1 and metric is accuracy:
            return _accuracy_of_one(ways[0])
        return mean_of_seeds([metric(families) for families in ways]) if ways else None

    def change(self, name: str, than: str, way: str, metric: FamilyMetric) -> Figure | None:
        """The difference from the variant ``than``, seed by seed."""
        base, own = self.runs.get(than, {}), self.runs[name]
        seeds = sorted(set(base) & set(own))
        found = [
            metric(own[seed]["ways"][way]) - metric(base[seed]["ways"][way])
            for seed in seeds
            if way in own[seed]["ways"]
        ]
        return mean_of_seeds(found) if found and name != than else None

    def families(self) -> list[str]:
        """Names of the families."""
        first = next(iter(self.content["runs"]))
        return list(first["ways"][AR])


def _text(figure: Figure | None, digits: int, *, sign: bool = False) -> str:
    return NONE if figure is None else figure.text(digits, sign=sign)


def write_results(plan: AblationPlan) -> None:
    """Gather all that is finished, with where it comes from, in one document; its tables and its
    picture beside it."""
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
        "checkpoints": {
            name: _read(path)
            for name in CHECKPOINTS
            if (path := plan.out / "checkpoints" / name / "measured.json").exists()
        },
    }
    path = plan.out / "ablations.json"
    write_text(path, _json(document))
    if document["runs"]:
        content = _read(path)
        write_text(path.with_suffix(".md"), markdown(content))
        write_text(path.with_suffix(".svg"), svg(content))


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _curve(path: Path) -> list[tuple[int, float, float | None]]:
    """Smoothed losses on the way: tokens read, clean, noisy (None of stage ``ar``)."""
    points = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        (one["tokens"], round(one["clean"], 4), round(one["noisy"], 4) if "noisy" in one else None)
        for one in points
    ]


def _json(document: Mapping[str, Any]) -> str:
    """One line for each run and each curve."""
    runs = ",\n".join(json.dumps(run) for run in document["runs"])
    curves = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(curve)}" for name, curve in document["curves"].items()
    )
    rest = json.dumps({**document, "runs": [], "curves": {}}, indent=1)
    whole = rest.replace('"runs": []', f'"runs": [\n{runs}\n]')
    return whole.replace('"curves": {}', f'"curves": {{\n{curves}\n}}') + "\n"


def markdown(content: Mapping[str, Any]) -> str:
    """Where it comes from, and every table."""
    results = AblationResults(content)
    parts = ["# Ablations of training", *_origin(content)]
    groups = dict.fromkeys(variant.group for variant in results.variants)
    for group in groups:
        members = [v for v in results.variants if v.group == group or v.name == BASE]
        parts += [f"## {group[:1].upper()}{group[1:]}", _group_table(results, members)]
    parts += ["## All, at τ 0.8", _bold_table(results)]
    parts += ["## Families, one token per forward (accuracy %)", _family_table(results)]
    parts += ["## Training", _training_table(results)]
    if stopped := stopped_lines(content):
        columns = ["training", "stopped at tokens", "clean loss", f"of {BASE} there", "noisy loss"]
        parts += ["## Stopped before the end: losses of the last fifth, not measured otherwise"]
        parts.append(_table([*columns, f"of {BASE} there"], stopped, num_words=1))
    return "\n\n".join(parts) + "\n"


def _origin(content: Mapping[str, Any]) -> list[str]:
    hardware, versions = content["hardware"], content["versions"]
    gpus = ", ".join(hardware["gpus"]) or "no GPU"
    cells = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [
        f"{gpus}; {hardware['processor']}, {hardware['cores']} cores. {cells}. {content['date']}, "
        f"commit {content['commit'] or 'unknown'}.",
        f"Every variant starts from {content['start']} and {_budget(content)} (both streams and "
        f"padding counted); {content['num_prompts']} held-out prompts of each of six families, "
        "the same for all. Means over seeds, ± half of a 95 % interval: over the seeds (Student's) "
        "where there are two or more, over the prompts (Wilson's) for the accuracy of one seed; "
        "other figures of one seed have none. TPF: tokens per forward. Accuracies are of decoding "
        "one token per forward (AR) and at a threshold τ with blocks of B; lossless text is AR's.",
    ]


def _budget(content: Mapping[str, Any]) -> str:
    if content["seconds"] is None:
        return f"reads {content['tokens']:,} tokens"
    return f"is trained for {content['seconds']:g} seconds, at most {content['tokens']:,} tokens"


def stopped_lines(content: Mapping[str, Any]) -> list[list[str]]:
    """Trainings that were given up, beside ``BASE`` of the same seed if it had read as much. A loss
    is the mean of the last fifth of what was read: single ones go up and down with the texts."""
    finished = {f"{run['variant']}-{run['seed']}" for run in content["runs"]}
    lines = []
    for name, curve in content["curves"].items():
        if name in finished or not curve:
            continue
        variant, seed = name.rsplit("-", 1)
        tokens = curve[-1][0]
        base = content["curves"].get(f"{BASE}-{seed}", [])
        is_there = variant != BASE and base and base[-1][0] > 0.95 * tokens
        lines.append([f"{variant}, seed {seed}", f"{tokens:,}"])
        for term in (1, 2):
            lines[-1].append(_late_loss(curve, term, tokens))
            lines[-1].append(_late_loss(base, term, tokens) if is_there else NONE)
    return lines


def _late_loss(curve: Sequence[Sequence[Any]], term: int, tokens: int) -> str:
    """The mean of a loss between 0.8 and 1 times ``tokens``."""
    found = [point[term] for point in curve if 0.8 * tokens <= point[0] <= tokens]
    return f"{fmean(found):.3f}" if found and None not in found else NONE


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]], num_words: int = 2) -> str:
    return Table("", tuple(columns), tuple(map(tuple, lines))).rows_to_markdown(num_words)


def _group_table(results: AblationResults, members: Sequence[Variant]) -> str:
    columns = ["variant", "what is changed", "seeds", "AR %", "against ar", "against mars-b8"]
    columns += ["τ 0.95 B=4 %", "TPF", "τ 0.95 B=8 %", "TPF", "lossless B=4 TPF", "B=8 TPF"]
    lines = []
    for one in members:
        line = [one.name, one.change, str(len(results.runs[one.name]))]
        line.append(_text(results.figure(one.name, AR, accuracy), 1))
        for than in (AR_ONLY, BASE):
            line.append(_text(results.change(one.name, than, AR, accuracy), 1, sign=True))
        for way in WAYS_SHOWN:
            line.append(_text(results.figure(one.name, way, accuracy), 1))
            line.append(_text(results.figure(one.name, way, tokens_per_forward), 2))
        for way in ("lossless 0 B4", "lossless 0 B8"):
            line.append(_text(results.figure(one.name, way, tokens_per_forward), 2))
        lines.append(line)
    return _table(columns, lines)


def _bold_table(results: AblationResults) -> str:
    columns = ["variant", "what is changed", "B=4 %", "TPF", "as AR %", "B=8 %", "TPF", "as AR %"]
    lines = [
        [
            one.name,
            one.change,
            *(
                _text(results.figure(one.name, way, metric), digits)
                for way in ("mars 0.8 B4", "mars 0.8 B8")
                for metric, digits in ((accuracy, 1), (tokens_per_forward, 2), (as_ar, 0))
            ),
        ]
        for one in results.variants
        if one.stage != "ar"
    ]
    return _table(columns, lines)


def _family_table(results: AblationResults) -> str:
    families = results.families()
    lines = []
    for one in results.variants:
        figures = [
            results.figure(one.name, AR, lambda found, name=name: accuracy({name: found[name]}))  # type: ignore[misc]
            for name in families
        ]
        lines.append([one.name, one.change, *(_text(figure, 1) for figure in figures)])
    return _table(["variant", "what is changed", *families], lines)


def _training_table(results: AblationResults) -> str:
    lines = []
    for one in results.variants:
        runs = list(results.runs[one.name].values())
        losses = [
            _text(mean_of_seeds([run["losses"][term] for run in runs]), 3)
            if all(term in run["losses"] for run in runs)
            else NONE
            for term in ("clean", "noisy")
        ]
        tokens, steps, seconds = (
            f"{fmean(run[key] for run in runs):,.0f}" for key in ("tokens", "steps", "seconds")
        )
        lines.append([one.name, one.change, tokens, steps, seconds, *losses])
    columns = ["variant", "what is changed", "tokens", "steps", "seconds beside others"]
    return _table([*columns, "clean loss", "noisy loss"], lines)


PANELS: tuple[tuple[str, str, FamilyMetric], ...] = (
    ("AR accuracy, %", AR, accuracy),
    ("Accuracy at τ 0.95, B = 8, %", "mars 0.95 B8", accuracy),
    ("Tokens per forward there", "mars 0.95 B8", tokens_per_forward),
    ("Lossless, B = 8: tokens per forward", "lossless 0 B8", tokens_per_forward),
)
LEFT, PANEL, GAP, ROW, TOP = 130, 200, 34, 24, 58
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2430; } .axis { font-size: 11px; fill: #49566a; }
line { stroke: #d7dde5; } .base { stroke: #49566a; stroke-dasharray: 4 3; }
.span { stroke: #215f9a; stroke-width: 2; } circle { fill: #215f9a; } rect { fill: #fff; }
@media (prefers-color-scheme: dark) { rect { fill: #12161c; } text { fill: #e6eaf0; }
  .axis { fill: #a9b4c3; } line { stroke: #303945; } .base { stroke: #a9b4c3; }
  .span { stroke: #7db4ec; } circle { fill: #7db4ec; } }
"""


def svg(content: Mapping[str, Any]) -> str:
    """One picture, light or dark as the reader's page: a line for each variant, a panel for each
    figure."""
    results = AblationResults(content)
    names = [variant.name for variant in results.variants]
    width = LEFT + len(PANELS) * (PANEL + GAP)
    height = TOP + ROW * len(names) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Ablations of training">',
        f'<style>{STYLE}</style><rect width="{width}" height="{height}"/>',
        '<text x="8" y="20">Mean over seeds; whiskers: 95 % interval (of one seed: over its '
        f"prompts, accuracy alone); dashed: {BASE}</text>",
    ]
    for row, name in enumerate(names):
        parts.append(f'<text x="8" y="{_y(row) + 4}">{escape(name)}</text>')
    for number, (title, way, metric) in enumerate(PANELS):
        figures = [results.figure(name, way, metric) for name in names]
        base = figures[names.index(BASE)] if BASE in names else None
        parts += _panel(LEFT + number * (PANEL + GAP), title, figures, base)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    left: int, title: str, figures: Sequence[Figure | None], base: Figure | None
) -> list[str]:
    ends = [
        one.value + side * (one.half or 0) for one in figures if one is not None for side in (-1, 1)
    ]
    if not ends:
        return []
    low, high = min(ends), max(ends)
    room = 0.06 * (high - low or 1)
    low, high = low - room, high + room

    def x(value: float) -> float:
        return round(left + PANEL * (value - low) / (high - low), 1)

    bottom = _y(len(figures))
    parts = [f'<text x="{left}" y="{TOP - 16}">{escape(title)}</text>']
    for value in _ticks(low, high):
        parts.append(f'<line x1="{x(value)}" x2="{x(value)}" y1="{TOP - 8}" y2="{bottom}"/>')
        parts.append(
            f'<text class="axis" text-anchor="middle" x="{x(value)}" y="{bottom + 14}">'
            f"{value:g}</text>"
        )
    if base is not None:
        at = x(base.value)
        parts.append(f'<line class="base" x1="{at}" x2="{at}" y1="{TOP - 8}" y2="{bottom}"/>')
    for row, one in enumerate(figures):
        if one is None:
            continue
        if one.half is not None:
            span = f'x1="{x(one.value - one.half)}" x2="{x(one.value + one.half)}"'
            parts.append(f'<line class="span" {span} y1="{_y(row)}" y2="{_y(row)}"/>')
        parts.append(f'<circle cx="{x(one.value)}" cy="{_y(row)}" r="4"/>')
    return parts


def _y(row: int) -> int:
    return TOP + ROW * row + ROW // 2


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round values between two."""
    step = next(
        step * 10.0**power
        for power in range(-3, 3)
        for step in (1, 2, 5)
        if (high - low) / (step * 10.0**power) <= 6
    )
    first = int(low // step) + 1
    return [round(step * n, 6) for n in range(first, int(high // step) + 1)]
