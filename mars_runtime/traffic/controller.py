"""A controller that changes tau or B of running requests with the length of the queue.

The controller has a level from 0 to ``LEVELS``. It measures the queue in steps of STEP_SHARE times
the number of slots, at least MIN_STEP requests. A queue of q steps requires a level from floor(q)
to ceil(q), and the level changes only as far as necessary to be in that range. Therefore a longer
queue never lowers the level, a constant queue changes it at most once, and the level falls only
after the queue has become a whole step shorter (hysteresis).

Without verification, a higher level means a lower tau: answers need fewer forward passes and agree
less with AR. In lossless mode, a higher level means a smaller B, because a rejected draft costs
time of all requests (Liu et al., arXiv 2406.14066). A request that will probably exceed its budget
is late until its end. It gets the lowest tau or the largest B of its bounds at every level.

All functions are pure. This module also defines the methods that a load compares.
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
"""A step of the queue: STEP_SHARE times the number of slots, at least MIN_STEP requests."""
HALF = 0.5
"""A request with fewer than two tokens is late after this share of its budget."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for the controller: tau from ``low`` to ``high``, B from ``least`` to ``most``.

    Raises SettingsError for values out of range or in the wrong order.
    """

    low: float = 0.5
    high: float = 0.95
    least: int = 1
    most: int = 8

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise SettingsError(
                f"The bounds of τ must be between 0 and 1, the lower one first, got {self.low:g} "
                f"and {self.high:g}."
            )
        if not 1 <= self.least <= self.most <= MAX_BLOCK_SIZE:
            raise SettingsError(
                f"The bounds of B must be between 1 and {MAX_BLOCK_SIZE}, the lower one first, got "
                f"{self.least} and {self.most}."
            )


@dataclass(frozen=True, slots=True)
class ControllerState:
    """State of the controller between two decisions. late: the numbers of the late requests."""

    level: int = 0
    late: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """The controller's input at one point in time.

    at: seconds since the start of the load. queue: number of waiting requests. places: number of
    slots. records: the unfinished requests.
    """

    at: float
    queue: int
    places: int
    records: Sequence[RequestRecord] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The controller's output at one point in time.

    at: seconds since the start of the load. queue: number of waiting requests. late: numbers of the
    late requests.
    """

    at: float
    queue: int
    level: int
    late: frozenset[int]


def decide(state: ControllerState, observed: Observation) -> tuple[ControllerState, Decision]:
    """Return the next state, and the decision that applies until the next decision."""
    steps = observed.queue / max(MIN_STEP, STEP_SHARE * observed.places)
    level = min(LEVELS, max(math.floor(steps), min(state.level, math.ceil(steps))))
    unfinished = frozenset(record.number for record in observed.records)
    newly = {record.number for record in observed.records if is_late(record, observed.at)}
    late = (state.late & unfinished) | newly
    return ControllerState(level, late), Decision(observed.at, observed.queue, level, late)


def is_late(record: RequestRecord, now: float) -> bool:
    """Return whether a request will probably exceed its budget.

    Assumes that the request generates all tokens of its limit at its average speed so far. Before
    its second token, it is late once HALF of the budget has passed.
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
    """Return the settings of request ``number`` after a decision.

    Changes tau, or B in lossless mode, within ``bounds``. Methods other than MARS are unchanged.
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
    """A decoding method that a load can use.

    settings: the initial settings. bounds: limits within which the controller changes the settings;
    None if they stay fixed.
    """

    name: str
    title: str
    settings: DecodeSettings
    bounds: Bounds | None = None


def methods_for(bounds: Bounds) -> dict[str, LoadMethod]:
    """Return all methods by name.

    Methods with a fixed tau use the upper bound; the controller changes the adaptive ones.
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
