"""Views of what trainings left, as the documents show it: a result in, a table out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from mars_runtime.lab.ablation.report import (
    AR,
    AR_ONLY,
    Document,
    Measure,
    accuracy,
    tokens_per_forward,
)
from mars_runtime.lab.documents.measured import Content
from mars_runtime.lab.evaluation.tables import NONE, Table

Way = tuple[str, Measure, int]
"""How it was decoded, what is shown of it, with how many digits."""

VARIANTS = {
    "start": "{start}, as it is",
    "ar": "AR on as many tokens",
    "mars-b4": "MARS, blocks of 4",
    "mars-b8": "MARS, blocks of 8",
    "mars-b16": "MARS, blocks of 16",
    "no-sft-b4": "no SFT loss, blocks of 4",
    "no-sft-b8": "no SFT loss, blocks of 8",
    "no-sft-b16": "no SFT loss, blocks of 16",
    "weight-0.25": "SFT loss counts 0.25 times",
    "weight-4": "SFT loss counts 4 times",
    "weight-16": "SFT loss counts 16 times",
    "random-mask": "random masks over the whole response",
    "bidirectional": "masks see all of their block",
    "unshifted": "a mask predicts its own token",
    "no-clean-stream": "no clean stream: a text ends with one block of masks",
}
LOW_RANK = {
    "mars-b8": "all weights",
    "lora": "low-rank updates",
    "lora-gated": "low-rank updates that act on masks alone",
}


def ablations(content: Content) -> Table:
    """Accuracy and tokens per forward of every variant, one seed each."""
    found = Document(content)
    lines = []
    for name, shown in _variants(found):
        ways = ("mars 0.95 B8", accuracy, 1), ("mars 0.95 B8", tokens_per_forward, 2)
        figures = _figures(found, name, ((AR, accuracy, 1), *ways, _lossless(8)))
        lines.append((shown, *figures))
    columns = ("variant", "AR %", "τ 0.95, B = 8 %", "TPF", "lossless B = 8 TPF")
    return Table("", columns, tuple(lines))


def ablations_with_seeds(content: Content) -> Table:
    """The same with several seeds, and the change against AR trained on as much."""
    found = Document(content)
    lines = []
    for name, shown in _variants(found):
        ar, *others = _figures(
            found, name, ((AR, accuracy, 1), ("mars 0.95 B4", accuracy, 1), *map(_lossless, (4, 8)))
        )
        is_trained = name not in ("start", AR_ONLY)
        change = found.change(name, AR_ONLY, AR, accuracy) if is_trained else None
        seeds = NONE if name == "start" else str(len(found.runs[name]))
        against = change.text(1, sign=True) if change else NONE
        lines.append((shown, seeds, ar, against, *others))
    accuracies = ("AR %", "against AR on as many tokens", "τ 0.95, B = 4 %")
    columns = ("variant", "seeds", *accuracies, "lossless B = 4 TPF", "lossless B = 8 TPF")
    return Table("", columns, tuple(lines))


def low_rank(content: Content) -> Table:
    """All weights against low-rank updates at equal time."""
    found = Document(content)
    lines = []
    for name, shown in LOW_RANK.items():
        read = fmean(run["tokens"] for run in found.runs[name].values())
        ways = ((AR, accuracy, 1), ("mars 0.95 B4", accuracy, 1), _lossless(4))
        lines.append((shown, f"{read:,.0f}", *_figures(found, name, ways)))
    columns = ("what is trained", "tokens read", "AR %", "τ 0.95, B = 4 %", "lossless B = 4 TPF")
    return Table("", columns, tuple(lines))


def _lossless(block_size: int) -> Way:
    return f"lossless 0 B{block_size}", tokens_per_forward, 2


def _variants(found: Document) -> list[tuple[str, str]]:
    start = found.content["start"]
    return [
        (one, shown.format(start=start)) for one, shown in VARIANTS.items() if one in found.runs
    ]


def _figures(found: Document, name: str, ways: Sequence[Way]) -> list[str]:
    figures = [(found.figure(name, way, measure), digits) for way, measure, digits in ways]
    return [NONE if figure is None else figure.text(digits) for figure, digits in figures]


SHOWN_DEPTHS = (2, 3, 4, 8)
KIND_NAMES = {"summary": "summaries and questions"}


def recipes(content: Content) -> Table:
    """Tokens per forward of every recipe that was tried, after as many masks."""
    steps = sorted({row["step"] for row in content["rows"]})
    found = {(row["recipe"], row["step"]): row for row in content["rows"]}
    lines = []
    for name in dict.fromkeys(row["recipe"] for row in content["rows"]):
        means = [found.get((name, step)) for step in steps]
        lines.append((name, *(f"{one['mean']:.2f}" if one else NONE for one in means)))
    masks = [max(row["masks"] for row in content["rows"] if row["step"] == step) for step in steps]
    heads = (f"after {round(count / 1000)} thousand masks" for count in masks)
    return Table("", ("recipe", *heads), tuple(lines))


def held_out(content: Content) -> Table:
    """Tokens per forward of an adapter on held-out texts, by depth and, at the deepest, by kind."""
    found: Mapping[str, Any] = content["held_out"]
    deepest = max(map(int, found["by_depth"]))
    rows = {f"B = {depth}": found["by_depth"][str(depth)] for depth in SHOWN_DEPTHS}
    for kind, pair in found["by_kind"].items():
        rows[f"{KIND_NAMES.get(kind, kind)}, B = {deepest}"] = pair
    lines = tuple((shown, *(f"{one:.2f}" for one in pair)) for shown, pair in rows.items())
    columns = ("tokens per forward", "one group", "a group after every pending token")
    return Table("", columns, lines)
