"""The presets of the Live tab: Exact, with which the page opens, and Fast, which also emits
unverified tokens.

Both were measured on the example prompts in one run; the Frontier tab shows the result. A preset
sets only the settings that it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from app.ui.controls import DEFAULTS
from mars_runtime.places import ASSETS
from mars_runtime.settings import AUTO, DecodeSettings, read_settings

MEASURED = ASSETS / "results" / "page_ways.json"
EXACT, FAST = "Exact", "Fast"
NAMES = (EXACT, FAST)
LEAST_AGREEMENT = 0.2
"""Minimum share of answers with exactly AR's tokens. Settings with a smaller share cannot become
the preset Fast.
"""
VERIFIED = ("tau", "block_size", "lossless", "mask_layout", "lookup")
"""Settings that the preset Exact sets."""
UNVERIFIED = ("tau", "block_size", "lossless", "metric", "tau_policy")
"""Settings that the preset Fast sets."""
CONTROLS = (*dict.fromkeys((*VERIFIED, *UNVERIFIED)), "auto")
"""Controls that a preset can set."""
Changes = Mapping[str, Any]


@cache
def presets_of(checkpoint: str, measured: Path = MEASURED) -> Mapping[str, Changes]:
    """Return the presets of a checkpoint by name, each with the settings that it changes.

    Fast has the fastest measured settings that emit unverified tokens. It is included only if it
    was faster than Exact in the same measurement.
    """
    rows = json.loads(measured.read_text(encoding="utf-8"))["ways"] if measured.is_file() else []
    presets = {EXACT: named(DEFAULTS, VERIFIED)}
    timed: dict[float, DecodeSettings] = {}
    exact = None
    for row in rows:
        settings, speed = read_settings(row["settings"]), float(row["speed"]["value"])
        if row["checkpoint"] != checkpoint or settings.method != "mars":
            continue
        if not settings.is_verified and row["agreement"]["value"] >= LEAST_AGREEMENT:
            timed[speed] = settings
        elif settings.is_verified and not settings.is_ar_lookup:
            exact = speed
    if exact is not None and timed and max(timed) > exact:
        presets[FAST] = named(timed[max(timed)], UNVERIFIED)
    return presets


def named(settings: DecodeSettings, names: tuple[str, ...]) -> Changes:
    return {name: getattr(settings, name) for name in names}


def controls_of(changes: Changes) -> dict[str, Any]:
    """Return the values of the controls for these settings. If B is automatic, the B slider is left
    unchanged.
    """
    values = dict(changes)
    if "block_size" in values:
        values["auto"] = values["block_size"] == AUTO
        if values["auto"]:
            del values["block_size"]
    return values


def preset_of(values: Mapping[str, Any], presets: Mapping[str, Changes]) -> str | None:
    """Return the name of the preset that matches the values of the controls, or None."""
    for name, changes in presets.items():
        if all(values.get(name) == value for name, value in controls_of(changes).items()):
            return name
    return None
