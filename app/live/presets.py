"""The presets of the Live tab: whole sets of settings. "Exact" is what the page opens with; the
others keep unverified tokens, and are those of the measured ways that pay off on this checkpoint.

``python -m app.examples.ways`` measured them on the page's examples; the Frontier tab draws them.
Knows no gradio and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from app.components.assets import ASSETS
from app.controls import DEFAULTS, LIVE_SETTINGS
from mars_runtime.settings import DecodeSettings

WAYS = ASSETS / "results" / "page_ways.json"
EXACT, BALANCED, FAST = "Exact", "Balanced", "Fast"
LEAST_AGREEMENT = 0.2
"""Share of answers with the very tokens of AR: ways with fewer are too bold for everyday use."""
NAMES = (EXACT, BALANCED, FAST)
CONTROLS = (*(name for name in LIVE_SETTINGS if name != "max_new_tokens"), "auto")
"""What a preset sets."""


@cache
def presets_of(checkpoint: str, measured: Path = WAYS) -> Mapping[str, DecodeSettings]:
    """Those that are offered: of the ways that need fewer passes than AR and no more time, and do
    not leave it in nearly every answer, Balanced is the one with most answers as AR gives them,
    Fast the one with fewest passes."""
    rows = json.loads(measured.read_text(encoding="utf-8"))["ways"] if measured.is_file() else []
    own = [row for row in rows if row["checkpoint"] == checkpoint]
    paying = [row for row in own if row["settings"]["method"] == "mars" and _pays(row)]
    found = {EXACT: DEFAULTS}
    if not paying:
        return found

    def fewest(row: Mapping[str, Any]) -> float:
        return float(row["tpf"]["value"])

    fast = max(paying, key=fewest)
    balanced = max(paying, key=lambda row: (row["agreement"]["value"], fewest(row)))
    found[BALANCED] = _settings(balanced)
    if fast is not balanced:
        found[FAST] = _settings(fast)
    return found


def _pays(row: Mapping[str, Any]) -> bool:
    """Whether it gains anything, at a price that may be paid."""
    is_like_ar = row["agreement"]["value"] >= LEAST_AGREEMENT
    return bool(is_like_ar and row["tpf"]["value"] > 1 and row["speed"]["value"] >= 1)


def _settings(row: Mapping[str, Any]) -> DecodeSettings:
    """What the way does not obey stays as the page has it."""
    told = row["settings"]
    return replace(DEFAULTS, lossless=False, tau=told["tau"], block_size=told["block_size"])


def controls_of(settings: DecodeSettings) -> dict[str, Any]:
    """The controls that show these settings: all that a preset sets, without the slider of B where
    B is chosen automatically."""
    values = {name: getattr(settings, name) for name in CONTROLS if name != "auto"}
    values["auto"] = settings.is_auto
    if settings.is_auto:
        del values["block_size"]
    return values


def preset_of(values: Mapping[str, Any], presets: Mapping[str, DecodeSettings]) -> str | None:
    """The preset that all of these controls show, if any."""
    for name, settings in presets.items():
        if all(values.get(each) == value for each, value in controls_of(settings).items()):
            return name
    return None
