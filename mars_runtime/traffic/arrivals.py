"""When requests arrive: seconds from the start, in order. Pure; knows no request and no clock."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Literal

Kind = Literal["poisson", "bursts", "recorded"]
BURST_SIZE = 6
"""Requests of a burst, on average; they come within ``BURST_SECONDS``."""
BURST_SECONDS = 0.25
MAX_RECORDED = 10_000


class ArrivalsError(ValueError):
    """Arrivals that make no sense; the message is one sentence that says what to do."""


def poisson(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """Arrivals that do not know of each other: ``rate`` per second on average, for ``seconds``."""
    rng, found, now = random.Random(seed), [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        found.append(now)
    return tuple(found)


def bursts(rate: float, seconds: float, seed: int) -> tuple[float, ...]:
    """The same rate on average, in bursts that arrive as Poisson's requests do."""
    rng = random.Random(f"bursts:{seed}")
    found = [
        begin + rng.uniform(0.0, BURST_SECONDS)
        for begin in poisson(rate / BURST_SIZE, seconds, seed)
        for _ in range(rng.randint(1, 2 * BURST_SIZE - 1))
    ]
    return tuple(sorted(moment for moment in found if moment < seconds))


def read_recorded(text: str) -> tuple[float, ...]:
    """Arrivals that were written down: seconds as a JSON list, or between commas or spaces.

    Raises ArrivalsError for what is no such list.
    """
    try:
        listed = json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except (ValueError, RecursionError):
        listed = None
    return check(listed)


def check(listed: object) -> tuple[float, ...]:
    """The seconds of a list, in order. Raises ArrivalsError."""
    given = listed if isinstance(listed, (list, tuple)) else ()
    if not 0 < len(given) <= MAX_RECORDED or not all(_is_moment(each) for each in given):
        raise ArrivalsError(
            "Give the arrivals as seconds from the start with commas between, such as 0, 0.4, 1.2."
        )
    return tuple(sorted(float(each) for each in given))


def rate_of(arrivals: Sequence[float]) -> float:
    """Arrivals per second up to the last one; 0 where there are no two moments."""
    last = max(arrivals, default=0.0)
    return len(arrivals) / last if last else 0.0


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.replace(",", " ").split()]


def _is_moment(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf  # type: ignore[operator]  # NaN compares false
