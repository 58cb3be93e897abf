"""Validation of the controls of the Load tab. Sizes are limited, so that one visitor cannot occupy
the machine for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui import rounds
from app.ui.controls import (
    CHECKPOINT,
    MAX_NEW_TOKENS,
    SYSTEM,
    Control,
    choice,
    count,
    number,
    read_all,
)
from mars_runtime.settings import SettingsError
from mars_runtime.traffic import workload
from mars_runtime.traffic.controller import Bounds, LoadMethod, methods_for

KINDS = {"poisson": "Poisson", "bursts": "bursts", "recorded": "recorded"}
COMPARE, CURVE = "compare", "curve"
QUESTIONS = {COMPARE: "Compare methods", CURVE: "Saturation curve"}
RATE_SHARES = (0.25, 0.5, 1.0, 1.5, 2.0)
"""Rates of the points of a curve, relative to the chosen rate."""
MAX_RATE, MAX_SECONDS, MAX_BUDGET, MAX_TOKENS = 40.0, 20.0, 60.0, 128
MAX_REQUESTS, MAX_IN_ALL = 120, 400
"""Maximum number of requests in one part, and in all parts of a round."""
NO_METHODS = "Choose at least one method from the list."
DURATION, DEADLINE = "The duration in seconds", "The deadline in seconds"
AT_A_TIME = "At most {} requests per method are possible, got {}. Lower the rate or the duration."
IN_ALL = (
    "At most {} requests per round are possible, got {}. Choose fewer methods, a lower rate or a "
    "shorter duration."
)
LATE = "The last arrival time must be at most {:g} s, got {:g} s."
MAX_RECORDED_CHARS = 4000
ARRIVAL_TIMES = (
    f"Enter the arrival times as a list of seconds, with at most {MAX_RECORDED_CHARS} characters."
)
LOWEST_TAU = "Lowest τ must not be above τ. Lower it, or raise τ."
SEED = 13


@dataclass(frozen=True, slots=True)
class Traffic:
    """One part of a run: one method, with its arrivals.

    rate: requests per second. seconds: duration of the arrivals. round: number of the round, from
    0; each round has the same arrivals.
    """

    method: LoadMethod
    arrivals: tuple[float, ...]
    rate: float
    seconds: float
    round: int = 0


@dataclass(frozen=True, slots=True)
class TrafficOrder:
    """A validated load request.

    budget: deadline in seconds, which applies to every other request; None for no deadline.
    """

    question: str
    kind: str
    parts: tuple[Traffic, ...]
    mix: str
    max_new_tokens: int
    budget: float | None
    checkpoint: str
    rounds: int
    system: str = ""

    @property
    def methods(self) -> tuple[LoadMethod, ...]:
        """The methods of all parts, without duplicates."""
        return tuple({part.method.name: part.method for part in self.parts}.values())

    def head(self) -> dict[str, Any]:
        """Return the head of the run's log."""
        return {
            "question": self.question,
            "kind": KINDS[self.kind],
            "ways": [{"name": method.name, "title": method.title} for method in self.methods],
            "seconds": max(part.seconds for part in self.parts),
            "requests": max(len(part.arrivals) for part in self.parts),
            "budget": self.budget,
            "rate": max(part.rate for part in self.parts),
            "rounds": self.rounds,
        }


def read_recorded(value: object, limits: Limits) -> str:
    """Validate the type and length of the recorded arrival times. Their content is validated only
    if it is used. Raises RefusalError.
    """
    if not isinstance(value, str) or len(value) > MAX_RECORDED_CHARS:
        raise RefusalError(
            "recorded",
            ARRIVAL_TIMES,
        )
    return value


def read_methods(value: object, limits: Limits) -> tuple[str, ...]:
    """Return the validated names of methods, without duplicates and in the order of the list.
    Raises RefusalError.
    """
    known = methods_for(Bounds())
    names = value if isinstance(value, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) and name in known for name in names):
        raise RefusalError("ways", NO_METHODS)
    return tuple(name for name in known if name in names)


TRAFFIC = (
    choice("question", QUESTIONS),
    choice("kind", KINDS),
    Control("recorded", read_recorded),
    number("rate", "Requests per second", 0.2, MAX_RATE),
    number("seconds", DURATION, 1.0, MAX_SECONDS),
    choice("mix", workload.MIXES),
    Control("ways", read_methods),
    number("high", "τ", 0.0, 1.0),
    number("low", "Lowest τ", 0.0, 1.0),
    number("budget", DEADLINE, 0.0, MAX_BUDGET),
    MAX_NEW_TOKENS,
    rounds.CONTROL,
    CHECKPOINT,
    SYSTEM,
)


def read_traffic_order(values: Mapping[str, Any], limits: Limits) -> TrafficOrder:
    """Validate the values of all controls of the tab. Raises RefusalError."""
    read = read_all(TRAFFIC, {"rounds": rounds.ROUNDS[0], **values}, limits)
    count("max_new_tokens", "Max tokens", 2, MAX_TOKENS).read(read["max_new_tokens"], limits)
    try:
        bounds = Bounds(read["low"], read["high"], 1, limits.block_size)
    except SettingsError:
        raise RefusalError("low", LOWEST_TAU) from None
    methods = [methods_for(bounds)[name] for name in read["ways"]]
    by_rate = list(zip(*(_parts(method, read) for method in methods), strict=True))
    parts = [part for at_rate in by_rate for part in at_rate]
    most = max(len(part.arrivals) for part in parts)
    in_all = sum(len(part.arrivals) for part in parts)
    if most > MAX_REQUESTS:
        raise RefusalError("rate", AT_A_TIME.format(MAX_REQUESTS, most))
    if in_all > MAX_IN_ALL:
        raise RefusalError("ways", IN_ALL.format(MAX_IN_ALL, in_all))
    return TrafficOrder(
        read["question"],
        read["kind"],
        tuple(_repeated(by_rate, read["rounds"])),
        read["mix"],
        read["max_new_tokens"],
        read["budget"] or None,
        read["checkpoint"],
        read["rounds"],
        read["system"],
    )


def _repeated(by_rate: Sequence[tuple[Traffic, ...]], num_rounds: int) -> Iterator[Traffic]:
    """Yield all parts in the order in which they run. At each rate, the methods take turns in every
    round.
    """
    for parts in by_rate:
        for turn in range(num_rounds):
            yield from (replace(part, round=turn) for part in rounds.in_turn(parts, turn))


def _parts(method: LoadMethod, read: Mapping[str, Any]) -> list[Traffic]:
    """Return the parts of one method: one part, or for a curve, one for each rate."""
    seconds, kind = read["seconds"], read["kind"]
    if kind == "recorded":
        if read["question"] == CURVE:
            raise RefusalError(
                "kind", "A curve cannot use recorded arrivals. Choose Poisson or bursts."
            )
        try:
            moments = workload.read_recorded(read["recorded"])
        except workload.ArrivalsError as error:
            raise RefusalError("recorded", str(error)) from None
        if moments[-1] > MAX_SECONDS:
            raise RefusalError("recorded", LATE.format(MAX_SECONDS, moments[-1]))
        return [Traffic(method, moments, workload.rate_of(moments), max(1.0, moments[-1]))]
    make = workload.poisson if kind == "poisson" else workload.bursts
    shares = RATE_SHARES if read["question"] == CURVE else (1.0,)
    rates = [share * read["rate"] for share in shares]
    # If the random draw has no arrival, one request arrives at the start.
    drawn = [(rate, make(rate, seconds, SEED) or (0.0,)) for rate in rates]
    return [Traffic(method, moments, rate, seconds) for rate, moments in drawn]
