"""The ways of decoding that are compared under load: settings, and whether a controller moves them.

Knows no engine and no requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mars_runtime.settings import AUTO, DecodeSettings
from mars_runtime.traffic.controller import Bounds

AR, LOSSLESS, FIXED, FOLLOW, FOLLOW_LOSSLESS = "ar", "lossless", "fixed", "follow", "draft"
_LOSSLESS = DecodeSettings(tau=0.0, lossless=True, block_size=AUTO, groups="every", lookup=True)


@dataclass(frozen=True, slots=True)
class Way:
    """settings: at first. bounds: within which a controller moves them, None where nobody does."""

    name: str
    title: str
    settings: DecodeSettings
    bounds: Bounds | None = None


def ways_of(bounds: Bounds) -> dict[str, Way]:
    """Every way by its name: fixed ways, tau at the upper end of ``bounds``, and the same with a
    controller that follows load within them."""
    tau = bounds.high
    unverified = DecodeSettings(tau=tau, block_size=AUTO)
    drafting = replace(_LOSSLESS, block_size=bounds.most, groups="one")
    ways = (
        Way(AR, "plain AR", DecodeSettings("ar", tau=1.0, block_size=1)),
        Way(LOSSLESS, "lossless", _LOSSLESS),
        Way(FIXED, f"τ {tau:g}", unverified),
        Way(FOLLOW, f"τ {tau:g} to {bounds.low:g}, by load", unverified, bounds),
        Way(FOLLOW_LOSSLESS, "lossless, B by load", drafting, bounds),
    )
    return {way.name: way for way in ways}
