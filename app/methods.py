"""The two methods of a run, MARS and plain AR: their titles and what each makes of the settings."""

from __future__ import annotations

from dataclasses import replace

from mars_runtime.settings import RECOMMENDED, DecodeSettings

DEFAULTS = RECOMMENDED
"""What the page and its endpoints begin with."""
FIXED_BLOCK_SIZE = 4
"""B where the visitor chooses it and has not moved its slider."""
TITLES = {"mars": "MARS", "ar": "plain AR"}


def settings_for(method: str, settings: DecodeSettings) -> DecodeSettings:
    """The settings by which a method decodes: the visitor's for MARS, plain for AR."""
    if method == "mars":
        return replace(settings, method="mars")
    return DecodeSettings(
        method="ar",
        tau=1.0,
        block_size=1,
        metric=settings.metric,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
    )
