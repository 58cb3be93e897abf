"""Limit settings while requests wait: a lower tau, or a smaller B in lossless mode, where rejected
drafts cost time (arXiv 2406.14066).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mars_runtime.decoders.methods import AUTO
from mars_runtime.settings import DecodeSettings

LEVELS = 4
MIN_UNIT = 2.0


@dataclass(frozen=True, slots=True)
class BusyRule:
    """low: tau at the highest level."""

    low: float
    depth: int

    def max_tau(self, level: int) -> float:
        return round(1.0 - (1.0 - self.low) * level / LEVELS, 4)

    def max_block_size(self, level: int) -> int:
        return min(self.depth, LEVELS + 1 - level) if level else self.depth

    def apply(self, settings: DecodeSettings, level: int) -> DecodeSettings:
        if not level or "lossless" not in settings.facts.obeys:
            return settings
        if not settings.lossless:
            return replace(settings, tau=min(settings.tau, self.max_tau(level)))
        if settings.block_size != AUTO:
            return settings
        return replace(settings, block_size=self.max_block_size(level), mask_layout="last")


def next_level(level: int, num_waiting: int, num_slots: int) -> int:
    """Hysteresis: a constant queue changes it at most once."""
    units = num_waiting / max(MIN_UNIT, num_slots / 2)
    return min(LEVELS, max(math.floor(units), min(level, math.ceil(units))))
