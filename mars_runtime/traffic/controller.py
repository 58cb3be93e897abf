"""A controller that follows load: how boldly each request drafts, by how many wait. Pure functions.

It has a level, 0 (calm) to ``LEVELS`` (as bold as bounds allow). A step is as many waiting requests
as half the places, two at least. A queue of q steps calls for a level between floor(q) and ceil(q),
and the level moves only as far as it must to be there. So it is monotone in the queue; a queue that
stays moves it once and never again; and a level that was reached at q steps is left only when the
queue has fallen by a whole step (hysteresis), so that one which sways a little moves nothing.

What a level means depends on the mode. Unverified, tau falls from the upper end of the request's
own bounds to the lower one: a shorter queue is paid for with agreement. Lossless, the text is AR's
whatever happens, and only drafting moves: B falls from the upper end of its bounds to the lower
one, because a refused draft takes time from everybody who waits (Liu et al., arXiv 2406.14066).
A request that is late for its budget gets the boldest its own bounds allow, whatever the queue:
the lowest tau, or the largest B; once late it stays so. Here too are the ways of decoding that are
compared under load: settings, and whether the controller moves them. Knows no engine, no clock and
no text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mars_runtime.methods import LANES, LOOKUP
from mars_runtime.settings import AR_LOOKUP, AUTO, MAX_BLOCK_SIZE, DecodeSettings, SettingsError
from mars_runtime.traffic.figures import Record

AR, LOSSLESS, FIXED, FOLLOW, FOLLOW_LOSSLESS = "ar", "lossless", "fixed", "follow", "draft"
_LOSSLESS = DecodeSettings(tau=0.0, lossless=True, block_size=AUTO, groups="every", lookup=True)
LEVELS = 4
STEP_SHARE, MIN_STEP = 0.5, 2.0
"""Waiting requests of a step: this share of the places, so many at least."""
HALF = 0.5
"""Of its budget: a request that has waited for so long without a token is late."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request allows: tau from ``low`` to ``high``, B from ``least`` to ``most``.

    Raises SettingsError.
    """

    low: float = 0.5
    high: float = 0.95
    least: int = 1
    most: int = 8

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise SettingsError("The bounds of τ must be from 0 to 1, the lower one first.")
        if not 1 <= self.least <= self.most <= MAX_BLOCK_SIZE:
            raise SettingsError(f"The bounds of B must be from 1 to {MAX_BLOCK_SIZE}, in order.")


@dataclass(frozen=True, slots=True)
class State:
    """What the controller remembers: its level, and the numbers of the requests that are late."""

    level: int = 0
    late: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    """What it sees ``at`` a moment: requests that wait, places there are, the requests that are not
    over (waiting or served)."""

    at: float
    queue: int
    places: int
    records: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What it decided ``at`` a moment: a level for all, the boldest for the ``late`` ones."""

    at: float
    queue: int
    level: int
    late: frozenset[int]


def decide(state: State, seen: Observation) -> tuple[State, Decision]:
    """The next state, and what is in force from now on."""
    wanted = seen.queue / max(MIN_STEP, STEP_SHARE * seen.places)
    level = min(LEVELS, max(math.floor(wanted), min(state.level, math.ceil(wanted))))
    unfinished = frozenset(record.number for record in seen.records)
    newly = {record.number for record in seen.records if is_late(record, seen.at)}
    late = (state.late & unfinished) | newly
    return State(level, late), Decision(seen.at, seen.queue, level, late)


def is_late(record: Record, now: float) -> bool:
    """Whether the request will miss its budget if it writes on as it did: all the tokens that it
    asked for, at the pace of those that it has; before its first token, by the wait alone."""
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
    """The settings of request ``number`` under a decision: never outside its own bounds. Other
    methods than MARS have nothing to steer."""
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
        Way(LOOKUP, LANES[LOOKUP].title, AR_LOOKUP),
        Way(LOSSLESS, "lossless", _LOSSLESS),
        Way(FIXED, f"τ {tau:g}", unverified),
        Way(FOLLOW, f"τ {tau:g} to {bounds.low:g}, by load", unverified, bounds),
        Way(FOLLOW_LOSSLESS, "lossless, B by load", drafting, bounds),
    )
    return {way.name: way for way in ways}
