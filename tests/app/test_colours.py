"""The colours of the style sheet, light and dark: text on them is readable, steps differ."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import pytest

from mars_runtime.files.paths import ASSETS

TOKENS = ASSETS / "web" / "core" / "tokens.css"


def palette(theme: str) -> dict[str, str]:
    """Name -> value, the dark ones over the light ones."""
    light, dark = TOKENS.read_text("utf-8").split(".dark .mars-race", 1)
    css = light if theme == "light" else light + dark
    return dict(re.findall(r"--rv-([\w-]+):\s*([^;]+);", css))


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_and_steps_and_runs_differ(theme: str) -> None:
    colours = palette(theme)
    runs = [f"run-{place}" for place in range(1, 7)]
    for step in range(1, 6):
        ink = colours["ramp-ink" if step < 5 else "ramp-ink-5"]
        assert contrast(ink, colours[f"ramp-{step}"]) >= 4.5
    for name in ("ink", "muted", "mars", "ar", "warm", "error", *runs):
        assert contrast(colours[name], colours["surface"]) >= 4.5
    steps = [colours[f"ramp-{step}"] for step in range(1, 6)]
    assert steps == sorted(steps, key=luminance, reverse=theme == "light")
    assert all(contrast(first, other) >= 1.5 for first, other in pairwise(steps))
    assert colours["run-1"] == colours["mars"]
    worn = [bytes.fromhex(colours[name][1:]) for name in (*runs, "ar", "warm", "error")]
    for first, other in combinations(worn, 2):
        assert sum(abs(a - b) for a, b in zip(first, other, strict=True)) >= 60
