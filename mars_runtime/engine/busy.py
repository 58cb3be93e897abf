"""Rule for settings while requests wait: a lower tau, or a smaller B in lossless mode.

The level has 0 to LEVELS steps and follows the queue, measured in units of half the slots, at least
MIN_UNIT requests. A queue of q units requires a level from floor(q) to ceil(q), and the level
changes only as far as necessary (hysteresis): a longer queue never lowers it, a constant queue
changes it at most once, and it is 0 whenever nothing waits.

Without verification tau is limited, so answers need fewer forward passes and agree less with AR. In
lossless mode B is limited, down to AR with prompt lookup: drafts that are rejected cost time of all
requests (Liu et al., arXiv 2406.14066), and no text changes. All functions are pure.
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
    """low: the limit of tau at the highest level. depth: the largest B that the model was trained
    with.
    """

    low: float
    depth: int

    def max_tau(self, level: int) -> float:
        return round(1.0 - (1.0 - self.low) * level / LEVELS, 4)

    def max_block_size(self, level: int) -> int:
        return min(self.depth, LEVELS + 1 - level) if level else self.depth

    def apply(self, settings: DecodeSettings, level: int) -> DecodeSettings:
        """Return the settings at a level. A B that the request fixed does not change."""
        if not level or "lossless" not in settings.facts.obeys:
            return settings
        if not settings.lossless:
            return replace(settings, tau=min(settings.tau, self.max_tau(level)))
        if settings.block_size != AUTO:
            return settings
        return replace(settings, block_size=self.max_block_size(level), mask_layout="last")


def next_level(level: int, num_waiting: int, num_slots: int) -> int:
    """Return the level for the current queue. num_slots: number of requests decoded at once."""
    units = num_waiting / max(MIN_UNIT, num_slots / 2)
    return min(LEVELS, max(math.floor(units), min(level, math.ceil(units))))
