"""What each method makes of the settings on the page, and what it is called there."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from mars_runtime.methods import METHODS, Method
from mars_runtime.settings import AUTO, RECOMMENDED, DecodeSettings

DEFAULTS = RECOMMENDED
"""What the page and its endpoints begin with."""
FIXED_BLOCK_SIZE = 4
"""B where the visitor chooses it and has not moved its slider, and where it can't be chosen."""
TITLES: dict[str, str] = {name: facts.title for name, facts in METHODS.items()}


def settings_for(method: str, settings: DecodeSettings) -> DecodeSettings:
    """The settings by which a method decodes: the visitor's where it obeys them, plain ones where
    it does not, so that a trace says what was in force."""
    facts = METHODS[cast(Method, method)]
    obeyed = {name: getattr(settings, name) for name in facts.obeys}
    if settings.is_auto and not facts.has_auto and obeyed:
        obeyed["block_size"] = FIXED_BLOCK_SIZE
    if method == "block_diffusion":
        if settings.block_size == 1:  # its checkpoints hide the slider
            obeyed["block_size"] = AUTO
        if settings.lossless:  # there τ says how boldly to draft, and nothing is drafted here
            obeyed["tau"] = DecodeSettings().tau
    plain = DecodeSettings(
        tau=1.0,
        block_size=1,
        metric=settings.metric,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
    )
    return replace(plain, method=cast(Method, method), **obeyed)
