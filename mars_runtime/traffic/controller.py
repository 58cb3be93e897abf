"""A controller that follows load: the longer the queue, the more aggressively requests draft.

The level is from 0 to ``LEVELS``, the most aggressive. The queue is measured in steps; a step is
half as many waiting requests as there are slots, at least two. A queue of q steps requires a level
from floor(q) to ceil(q), and the level moves only as far as needed to be in that range. So it is
monotone in the queue, a constant queue moves it at most once, and it falls only when the queue has
shrunk by a whole step (hysteresis).

The effect of a level depends on the mode. Unverified: tau falls from the upper end of the request's
bounds to the lower one, which shortens the queue and costs agreement. Lossless: the text is always
AR's, and B falls from the upper end of its bounds to the lower one, because a rejected draft costs
time of all waiting requests (Liu et al., arXiv 2406.14066). A request that is late for its budget
gets the most aggressive value in its bounds, whatever the queue: the lowest tau, or the largest B.
It stays late to its end.

All functions are pure. This module also defines the methods that are compared under load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mars_runtime.methods import LANES, LOOKUP
from mars_runtime.settings import AR_LOOKUP, AUTO, MAX_BLOCK_SIZE, DecodeSettings, SettingsError
from mars_runtime.traffic.figures import RequestRecord

AR, LOSSLESS, FIXED, FOLLOW, FOLLOW_LOSSLESS = "ar", "lossless", "fixed", "follow", "draft"
_LOSSLESS = DecodeSettings(
    tau=0.0, lossless=True, block_size=AUTO, mask_layout="every", lookup=True
)
LEVELS = 4
STEP_SHARE, MIN_STEP = 0.5, 2.0
"""Waiting requests per step: this share of the slots, at least ``MIN_STEP``."""
HALF = 0.5
"""Share of its budget after which a request without a token is late."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that a request allows: tau from ``low`` to ``high``, B from ``least`` to ``most``.

    Raises SettingsError.
    """

    low: float = 0.5
    high: float = 0.95
    least: int = 1
    most: int = 8

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise SettingsError("The bounds of τ must be between 0 and 1, the lower one first.")
        if not 1 <= self.least <= self.most <= MAX_BLOCK_SIZE:
            raise SettingsError(
                f"The bounds of B must be between 1 and {MAX_BLOCK_SIZE}, the lower one first."
            )


@dataclass(frozen=True, slots=True)
class ControllerState:
    """State of the controller: its level, and the numbers of the late requests."""

    level: int = 0
    late: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """Input of the controller at time ``at``: length of the queue, number of slots, and the
    unfinished requests.
    """

    at: float
    queue: int
    places: int
    records: Sequence[RequestRecord] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Output of the controller at time ``at``: the level, and the numbers of the ``late``
    requests.
    """

    at: float
    queue: int
    level: int
    late: frozenset[int]


def decide(state: ControllerState, seen: Observation) -> tuple[ControllerState, Decision]:
    """Return the next state, and the decision in force from now on."""
    wanted = seen.queue / max(MIN_STEP, STEP_SHARE * seen.places)
    level = min(LEVELS, max(math.floor(wanted), min(state.level, math.ceil(wanted))))
    unfinished = frozenset(record.number for record in seen.records)
    newly = {record.number for record in seen.records if is_late(record, seen.at)}
    late = (state.late & unfinished) | newly
    return ControllerState(level, late), Decision(seen.at, seen.queue, level, late)


def is_late(record: RequestRecord, now: float) -> bool:
    """Whether the request will probably exceed its budget.

    Assumes that it uses its whole token limit at its present pace. Before its second token, only
    the time since its arrival counts.
    """
    if record.budget is None:
        return False
    waited = now - record.arrived
    if record.first is None or record.num_tokens < 2:
        return waited > HALF * record.budget
    pace = (now - record.first) / (record.num_tokens - 1)
    left = record.max_new_tokens - record.num_tokens
    return waited + pace * left > record.budget


def steered(
    settings: DecodeSettings, bounds: Bounds, decision: Decision, number: int
) -> DecodeSettings:
    """Return the settings of request ``number`` under a decision, within its own bounds. Only MARS
    is steered.
    """
    if settings.method != "mars":
        return settings
    is_late = number in decision.late
    if settings.lossless:
        share = 0.0 if is_late else decision.level / LEVELS
        most = bounds.most - round(share * (bounds.most - bounds.least))
        return replace(settings, block_size=most)
    share = 1.0 if is_late else decision.level / LEVELS
    return replace(settings, tau=min(bounds.high, max(bounds.low, _between(bounds, share))))


def _between(bounds: Bounds, share: float) -> float:
    return round(bounds.high - share * (bounds.high - bounds.low), 4)


@dataclass(frozen=True, slots=True)
class LoadMethod:
    """A method under load. settings: initial ones. bounds: limits within which the controller
    changes them; None for a fixed method.
    """

    name: str
    title: str
    settings: DecodeSettings
    bounds: Bounds | None = None


def methods_for(bounds: Bounds) -> dict[str, LoadMethod]:
    """Return every method by its name: fixed ones, with tau at the upper end of ``bounds``, and
    ones that the controller steers within them.
    """
    tau = bounds.high
    unverified = DecodeSettings(tau=tau, block_size=AUTO)
    drafting = replace(_LOSSLESS, block_size=bounds.most, mask_layout="last")
    methods = (
        LoadMethod(AR, "plain AR", DecodeSettings("ar", tau=1.0, block_size=1)),
        LoadMethod(LOOKUP, LANES[LOOKUP].title, AR_LOOKUP),
        LoadMethod(LOSSLESS, "lossless", _LOSSLESS),
        LoadMethod(FIXED, f"τ {tau:g}", unverified),
        LoadMethod(FOLLOW, f"adaptive τ, {tau:g} to {bounds.low:g}", unverified, bounds),
        LoadMethod(FOLLOW_LOSSLESS, "lossless, adaptive B", drafting, bounds),
    )
    return {method.name: method for method in methods}
