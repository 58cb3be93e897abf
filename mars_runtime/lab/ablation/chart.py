"""The ablations as one picture: a line for each variant, a panel for each figure. Writes SVG that
follows the reader's light or dark page. Knows figures; measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mars_runtime.lab.ablation.report import (
    AR,
    BASE,
    Document,
    Figure,
    Measure,
    accuracy,
    tokens_per_forward,
)

PANELS: tuple[tuple[str, str, Measure], ...] = (
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
    """The whole file."""
    document = Document(content)
    names = [variant.name for variant in document.variants]
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
    for number, (title, way, measure) in enumerate(PANELS):
        figures = [document.figure(name, way, measure) for name in names]
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
